// Package image has the verbs about images: build, pull, push, images, tag, rmi, import, export, save, login, logout and commit.
//
// Package images reads the store, and starts demesne-images for whatever has to be fetched, unpacked or sent; this package
// parses no archive and talks to no registry. commit asks the runner for the layers of a snapshot, so that a sandbox
// continues. A file that export and save write appears when it is complete (rename(2)).
package image

import (
	"demesne/build"
	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// Verbs returns the verbs about images.
func Verbs() []app.Verb {
	return []app.Verb{buildCommand(), pullCommand(), pushCommand(), imagesCommand(), tagCommand(), rmiCommand(),
		importCommand(), exportCommand(), saveCommand(), loginCommand(), logoutCommand()}
}

func buildCommand() app.Verb {
	flags := func() cmdline.Flags { return new(build.Options).Flags() }
	return app.External(*new(build.Options).Command(), flags, "demesne-images", "build")
}
