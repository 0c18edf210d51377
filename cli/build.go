package cli

import (
	"demesne/build/buildcmd"
	"demesne/internal/cmdline"
)

// buildProgram builds images. It is a separate program because it links the parser of Containerfiles.
const buildProgram = "demesne-build"

func buildCommand() command {
	flags := func() cmdline.Flags { return buildcmd.Flags(&buildcmd.Options{}) }
	return external(*buildcmd.Command(&buildcmd.Options{}), flags, buildProgram)
}
