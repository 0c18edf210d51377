package cli

import (
	"demesne/build/buildcmd"
	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// buildProgram builds images. It is a separate program because it links the parser of Containerfiles.
const buildProgram = "demesne-build"

func buildCommand() app.Verb {
	flags := func() cmdline.Flags { return buildcmd.Flags(&buildcmd.Options{}) }
	return app.External(*buildcmd.Command(&buildcmd.Options{}), flags, buildProgram)
}
