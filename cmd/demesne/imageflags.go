package main

// The flags of the commands about images.

// rootFlags returns the image flags of run and create.
func rootFlags(o *options) flagSet {
	return flagSet{
		{group: groupSandbox, long: "image", arg: "NAME", complete: anImage, set: o.setImage,
			help: "root filesystem to run on: host (this machine's own /usr, read-only), a name that demesne images --all lists, a reference, or dir:ROOTFS (default $DEMESNE_DEFAULT_IMAGE or host)"},
		{group: groupSandbox, long: "pull", arg: "WHEN", complete: aWord, words: pullPolicies, set: o.setPull,
			help: "ask the registry for the image: missing, always or never (default missing)"},
	}
}

func entrypointFlag(o *options) flagSet {
	return flagSet{{group: groupCommand, long: "entrypoint", arg: "PROGRAM", set: o.setEntrypoint,
		help: "program to start in place of the image's entrypoint and command; empty for neither"}}
}

func quietFlag(o *options, what string) flagSet {
	return flagSet{{group: groupResult, long: "quiet", short: 'q', set: on(&o.quiet), help: what}}
}

func pullFlags(o *options) flagSet {
	return join(flagSet{{group: groupGeneral, long: "platform", arg: "OS/ARCH", set: text(&o.platform),
		help: "whose image to take where there are several, such as linux/arm64 (default this machine's)"}},
		jsonFlag(o), quietFlag(o, "print the digests alone, and no progress"))
}

func imagesFlags(o *options) flagSet {
	return join(flagSet{{group: groupResult, long: "all", short: 'a', set: on(&o.all),
		help: "list the catalogue's names too that are not pulled yet"}},
		jsonFlag(o), quietFlag(o, "print the names alone"))
}

func rmiFlags(o *options) flagSet {
	return flagSet{{group: groupGeneral, long: "force", short: 'f', set: on(&o.force),
		help: "also remove an image that a sandbox runs on"}}
}

func importFlags(o *options) flagSet {
	return join(jsonFlag(o), quietFlag(o, "print the digest alone"))
}

func exportFlags(o *options) flagSet { return fileFlag(o, "file to write (default stdout)") }

func fileFlag(o *options, help string) flagSet {
	return flagSet{{group: groupResult, long: "output", short: 'o', arg: "FILE", complete: aFile, set: text(&o.file), help: help}}
}

func saveFlags(o *options) flagSet {
	return join(fileFlag(o, "file to write; - is stdout"),
		flagSet{{group: groupResult, long: "format", arg: "FORMAT", complete: aWord, words: formats, set: o.setFormat,
			help: "oci or docker (default oci)"}})
}

func gcFlags(o *options) flagSet {
	return join(flagSet{
		{group: groupGeneral, long: "all", short: 'a', set: on(&o.all), help: "remove every image that is not in use"},
		{group: groupGeneral, long: "older-than", arg: "DURATION", set: durationFlag(&o.olderThan),
			help: "remove images that no sandbox began on for so long, such as 168h; with --outputs, output directories"},
		{group: groupGeneral, long: "outputs", set: on(&o.outputs), help: "remove output directories that are not in use: empty ones, or with --older-than old ones"},
		{group: groupGeneral, long: "runner", set: on(&o.runner), help: "only end a runner that lingers for the next command"},
	}, jsonFlag(o))
}
