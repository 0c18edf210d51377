package cli

import (
	"slices"

	"demesne/cli/app"
	"demesne/internal/cmdline"
)

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

// madeFlags are the flags of verbs that make an image.
func madeFlags(json, quiet *bool) cmdline.Flags {
	return slices.Concat(app.JSONFlag(json), app.QuietFlag(quiet, "print only the digest"))
}
