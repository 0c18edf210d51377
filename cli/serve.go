package cli

import (
	"demesne/internal/cmdline"
	"demesne/server/servecmd"
)

// serverProgram serves HTTP APIs. It is a separate program because an HTTP server would slow down every run.
const serverProgram = "demesne-server"

func serveCommand() command {
	line := *servecmd.Command(&servecmd.Options{})
	line.Raw, line.Flags = true, nil
	return command{
		Command: line,
		flags:   func(*options) cmdline.Flags { return servecmd.Flags(&servecmd.Options{}) },
		run:     func(_ *app, _ *options, args []string) (int, error) { return executeProgram(serverProgram, args) },
	}
}
