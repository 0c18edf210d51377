package cli

import (
	"slices"

	"demesne/cli/app"
	"demesne/internal/cmdline"
)

// archiveOptions describe an image that is pulled, exported or saved.
type archiveOptions struct {
	file     string // -o
	format   string
	platform string
}

// The flags of the commands about images.

// rootFlags returns the image flags of run and create.
func rootFlags(o *rootOptions) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "image", Arg: "NAME", Complete: cmdline.Image, Set: o.setImage,
			Help: "root filesystem: host (this machine's /usr, read-only), a name from demesne images --all, a reference, or dir:ROOTFS (default $DEMESNE_DEFAULT_IMAGE or host)"},
		{Group: app.GroupSandbox, Long: "pull", Arg: "WHEN", Words: pullPolicies, Set: cmdline.Word(&o.pull, pullPolicies),
			Help: "when to ask the registry: missing, always or never (default missing)"},
	}
}

func entrypointFlag(o *processOptions) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "entrypoint", Arg: "PROGRAM", Set: o.setEntrypoint,
		Help: "replace the image's entrypoint and command by a program; empty removes both"}}
}

func pullFlags(o *options) cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "platform", Arg: "OS/ARCH", Set: cmdline.Text(&o.platform),
		Help: "platform of an image with several, such as linux/arm64 (default this machine's)"}},
		app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the digests, and no progress"))
}

func imagesFlags(o *options) cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupResult, Long: "all", Short: 'a', Set: cmdline.On(&o.all),
		Help: "list the whole catalogue, with images that are not pulled yet"}},
		app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the names"))
}

func rmiFlags(o *options) cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "force", Short: 'f', Set: cmdline.On(&o.force),
		Help: "also remove the names of an image that a sandbox uses"}}
}

func importFlags(o *options) cmdline.Flags {
	return slices.Concat(app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the digest"))
}

func exportFlags(o *options) cmdline.Flags {
	return fileFlag(&o.archiveOptions, "file to write (default stdout)")
}

func fileFlag(o *archiveOptions, help string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "output", Short: 'o', Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.file), Help: help}}
}

func saveFlags(o *options) cmdline.Flags {
	return slices.Concat(fileFlag(&o.archiveOptions, "file to write; - is stdout"),
		cmdline.Flags{{Group: app.GroupResult, Long: "format", Arg: "FORMAT", Words: formats, Set: cmdline.Word(&o.format, formats),
			Help: "oci or docker (default oci)"}})
}
