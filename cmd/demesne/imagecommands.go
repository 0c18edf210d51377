package main

// imageCommands returns the verbs about images.
func imageCommands() []command {
	return []command{pullCommand(), imagesCommand(), rmiCommand(), importCommand(), exportCommand(), saveCommand(), gcCommand()}
}

func pullCommand() command {
	return command{
		name: "pull", usage: []string{"[--platform OS/ARCH] [--json | -q] NAME…"}, summary: "fetch images",
		about: `Asks the registry what NAME is now, fetches what of it is not here yet, and unpacks it, so
that a run need not. NAME is a word of the catalogue (demesne images --all), a reference such as
debian:12 or ghcr.io/o/n@sha256:…, or oci:DIR[:TAG], oci-archive:FILE, docker-archive:FILE.
Prints each image as its name and digest. Mirrors, credentials and certificates are where
podman, skopeo and docker keep them.`,
		examples: []example{
			{"one of the catalogue", "demesne pull python"},
			{"exactly this one, for a script", "demesne pull -q ghcr.io/o/n@sha256:4bcf…"},
			{"from a directory in OCI layout", "demesne pull oci:layout:v1"},
		},
		flags: pullFlags, operand: anImage, run: cmdPull,
	}
}

func imagesCommand() command {
	return command{
		name: "images", usage: []string{"[--all] [--json | -q]", "verify [--json]"}, summary: "list images, or verify them",
		about: `Lists the images that are here: their size as they were fetched, how much of that other
images have too, what their layers take unpacked, and when a sandbox last began on them. demesne images check reads every byte of them instead,
compares it with its digest, removes what is not what it should be, and exits 1 if there was any;
the next pull or run of such an image fetches it anew.`,
		examples: []example{
			{"what is here", "demesne images"},
			{"and what the catalogue has besides", "demesne images --all"},
			{"after a disk went bad", "demesne images check"},
		},
		flags: imagesFlags, operand: aWord, words: []string{"check"}, run: cmdImages,
	}
}

func rmiCommand() command {
	return command{
		name: "rmi", usage: []string{"[--force] NAME…"}, summary: "remove images",
		about: `Removes names of images, and with its last name the image. A digest, or the first twelve
digits of one, removes all names of it. An image that a sandbox runs on is not removed unless
--force says so, and then only its names: the sandbox keeps its files.`,
		examples: []example{
			{"one", "demesne rmi python"},
			{"by its digest", "demesne rmi 4bcf01b2c3d4"},
		},
		flags: rmiFlags, operand: anImage, run: cmdRmi,
	}
}

func importCommand() command {
	return command{
		name: "import", usage: []string{"TAR|DIR NAME"}, summary: "make an image of a directory or an archive",
		about: `Makes an image of one layer out of a root filesystem: a directory, or a tar of one (gzip and
zstd are seen). A tar that podman save, docker save or demesne save wrote becomes the image it is.
NAME is what to call it, such as local/base or local/base:2; of a bare word, :latest is meant.`,
		examples: []example{
			{"what debootstrap, mmdebstrap or buildroot made", "demesne import rootfs.tar local/base"},
			{"from another machine", "podman save app | gzip > app.tgz; demesne import app.tgz local/app"},
		},
		flags: importFlags, operand: aFile, run: cmdImport,
	}
}

func exportCommand() command {
	return command{
		name: "export", usage: []string{"[-o FILE] NAME"}, summary: "write an image's files as one tar",
		about: `Writes the root filesystem of an image as a tar, its layers put together, to stdout or FILE.
The configuration is not in it: demesne save keeps that.`,
		examples: []example{
			{"to a file", "demesne export -o base.tar local/base"},
			{"one file of it", "demesne export debian | tar -xO etc/os-release"},
		},
		flags: exportFlags, operand: anImage, run: cmdExport,
	}
}

func saveCommand() command {
	return command{
		name: "save", usage: []string{"[--format oci|docker] -o FILE NAME"}, summary: "write an image as an archive",
		about: `Writes an image, layers and configuration as they are, into one file that demesne import,
podman load and skopeo read (with --format docker, docker load as well).`,
		examples: []example{
			{"for another machine", "demesne save -o app.tar local/app"},
			{"for docker load", "demesne save --format docker -o app.tar local/app"},
		},
		flags: saveFlags, operand: anImage, run: cmdSave,
	}
}

func gcCommand() command {
	return command{
		name: "gc", usage: []string{"[--all] [--older-than DURATION] [--json]", "--outputs [--older-than DURATION] [--json]", "--runner"}, summary: "free disk space",
		about: `Removes what no image here needs: blobs, unpacked layers, downloads given up. With --all or
--older-than it removes images first. Jobs that ended a week ago are forgotten, and so are
logs of decisions about the network that nobody added to for as long, and the manifests of
outputs that are gone. Nothing is removed that a sandbox uses, that is being pulled, or that
another user's demesne keeps. With --outputs it removes output directories instead: those that are empty, and with
--older-than those that did not change for so long. One that a sandbox, a run or a job uses stays.`,
		examples: []example{
			{"leftovers only", "demesne gc"},
			{"and images no sandbox began on for a week", "demesne gc --older-than 168h"},
			{"and every image that is not in use", "demesne gc --all"},
			{"outputs of runs a week ago", "demesne gc --outputs --older-than 168h"},
			{"end the runner now that waits for the next command (see DEMESNE_LINGER)", "demesne gc --runner"},
		},
		flags: gcFlags, run: cmdGC,
	}
}
