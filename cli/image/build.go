package image

import (
	"demesne/build/buildcmd"
	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
)

func buildCommand() app.Verb {
	flags := func() cmdline.Flags { return buildcmd.Flags(&buildcmd.Options{}) }
	return app.External(*buildcmd.Command(&buildcmd.Options{}), flags, launch.BuildProgram)
}
