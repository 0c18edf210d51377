package image

import (
	"demesne/build"
	"demesne/cli/app"
	"demesne/internal/cmdline"
)

func buildCommand() app.Verb {
	flags := func() cmdline.Flags { return build.Flags(&build.Options{}) }
	return app.External(*build.Command(&build.Options{}), flags, "demesne-images", "build")
}
