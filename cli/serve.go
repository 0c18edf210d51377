package cli

import (
	"demesne/internal/cmdline"
	"demesne/server/servecmd"
)

// serverProgram serves HTTP APIs. It is a separate program because an HTTP server would slow down every run.
const serverProgram = "demesne-server"

func serveCommand() command {
	flags := func() cmdline.Flags { return servecmd.Flags(&servecmd.Options{}) }
	return external(*servecmd.Command(&servecmd.Options{}), flags, serverProgram)
}
