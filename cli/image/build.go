package image

import (
	"demesne/build"
	"demesne/cli/app"
	"demesne/internal/cmdline"
)

func buildCommand() app.Verb {
	flags := func() cmdline.Flags { return new(build.Options).Flags() }
	return app.External(*new(build.Options).Command(), flags, "demesne-images", "build")
}
