package cli

import (
	"demesne/build/buildcmd"
	"demesne/internal/cmdline"
)

// buildProgram builds images. It is a separate program because it links the parser of Containerfiles.
const buildProgram = "demesne-build"

func buildCommand() command {
	line := *buildcmd.Command(&buildcmd.Options{})
	line.Raw, line.Flags = true, nil
	return command{
		Command: line,
		flags:   func(*options) cmdline.Flags { return buildcmd.Flags(&buildcmd.Options{}) },
		run:     func(_ *app, _ *options, args []string) (int, error) { return executeProgram(buildProgram, args) },
	}
}
