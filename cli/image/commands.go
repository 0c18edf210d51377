// Package image has the verbs about images: build, pull, push, images, tag, rmi, import, export, save, login, logout and commit.
//
// Package images reads the store, and starts demesne-images for whatever has to be fetched, unpacked or sent; this package
// parses no archive and talks to no registry. commit asks the runner for the layers of a snapshot, so that a sandbox
// continues. A file that export and save write appears when it is complete (rename(2)).
package image

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// Verbs returns the verbs about images.
func Verbs() []app.Verb {
	return []app.Verb{buildCommand(), pullCommand(), pushCommand(), imagesCommand(), tagCommand(), rmiCommand(),
		importCommand(), exportCommand(), saveCommand(), loginCommand(), logoutCommand()}
}

func pullCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "pull", Usage: []string{"[--platform OS/ARCH] [--json | -q] NAME…"}, Summary: "pull images",
			About: `Asks the registry for each image, downloads the missing layers, and unpacks them, so that a run does not have to. It
prints each image as its name and digest.

NAME is a word of the catalogue (demesne images --all), a reference such as debian:12 or
registry.example/o/n@sha256:…, or oci:DIR[:TAG], oci-archive:FILE or docker-archive:FILE. Mirrors, credentials and
certificates come from the files of podman, skopeo and docker.`,
			Examples: []cmdline.Example{
				{Says: "pull an image of the catalogue", Line: "demesne pull python"},
				{Says: "pull one exact image in a script", Line: "demesne pull -q registry.example/o/n@sha256:4bcf…"},
				{Says: "pull from a directory in OCI layout", Line: "demesne pull oci:layout:v1"},
			},
			Operand: cmdline.Image,
		},
		New: func(a *app.App) app.Options { return &pullOptions{App: a} },
	}
}

func imagesCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "images", Usage: []string{"[--all] [--json | -q]", "check [--json]"}, Summary: "list images, or check their contents",
			About: `Lists the local images: the size of the download, how much of it other images share, the unpacked size, and the last
use by a sandbox.

demesne images check reads all contents instead, and compares them with their digests. It removes content that does not
match, and exits 1 if it found any. The next pull or run of such an image downloads that content again.`,
			Examples: []cmdline.Example{
				{Says: "list local images", Line: "demesne images"},
				{Says: "list the catalogue too", Line: "demesne images --all"},
				{Says: "check after a disk error", Line: "demesne images check"},
			},
			Words: []string{"check"},
		},
		New: func(a *app.App) app.Options { return &listOptions{App: a} },
	}
}

func rmiCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "rmi", Usage: []string{"[--force] NAME…"}, Summary: "remove images",
			About: `Removes names of images. An image is removed with its last name. A digest, or its first twelve digits, removes all names
of the image. An image that a sandbox uses is kept, unless --force is given. Even then only its names are removed, and
the sandbox keeps its files.`,
			Examples: []cmdline.Example{
				{Says: "remove one image", Line: "demesne rmi python"},
				{Says: "remove by digest", Line: "demesne rmi 4bcf01b2c3d4"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &removeOptions{App: a} },
	}
}

func importCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "import", Usage: []string{"TAR|DIR NAME"}, Summary: "make an image from a directory or an archive",
			About: `Makes an image of one layer from a root filesystem: a directory, or a tar of one, also compressed with gzip or zstd. A tar
that podman save, docker save or demesne save wrote becomes the same image again.

NAME is the name of the new image, such as local/base or local/base:2. The default tag is latest.`,
			Examples: []cmdline.Example{
				{Says: "import the result of debootstrap, mmdebstrap or buildroot", Line: "demesne import rootfs.tar local/base"},
				{Says: "import an image from podman", Line: "podman save app | gzip > app.tgz; demesne import app.tgz local/app"},
			},
			Operand: cmdline.File,
		},
		New: func(a *app.App) app.Options { return &importOptions{App: a} },
	}
}

func exportCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "export", Usage: []string{"[-o FILE] NAME"}, Summary: "write the root filesystem of an image as a tar",
			About: `Writes the root filesystem of an image as one tar, with its layers merged, to stdout or to FILE. The image's configuration
is not included; demesne save keeps it.`,
			Examples: []cmdline.Example{
				{Says: "write a file", Line: "demesne export -o base.tar local/base"},
				{Says: "print one file of an image", Line: "demesne export debian | tar -xO etc/os-release"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &exportOptions{archiveOptions{App: a}} },
	}
}

func saveCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "save", Usage: []string{"[--format oci|docker] -o FILE NAME"}, Summary: "write an image as an archive",
			About: `Writes an image, with its layers and configuration, into one file. demesne import, podman load and skopeo read it. With
--format docker, docker load reads it too.`,
			Examples: []cmdline.Example{
				{Says: "write an archive for another machine", Line: "demesne save -o app.tar local/app"},
				{Says: "write an archive for docker load", Line: "demesne save --format docker -o app.tar local/app"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &saveOptions{archiveOptions: archiveOptions{App: a}} },
	}
}
