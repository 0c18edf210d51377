// Package worker is the program demesne-images, apart from its builds: registries, archives, unpacking. demesne starts it. Package events defines their protocol: JSON on stdout, one event a line, the last one "result" or
// "error".
//
//	demesne-images pull   [--store DIR] [--platform OS/ARCH] [--username USER --as NAME] REF     the password on descriptor 3
//	demesne-images fetch  [--store DIR] DIGEST          the blobs of an image that gc dropped
//	demesne-images feature [--store DIR] REF            a dev container feature, as an image of one layer
//	demesne-images import [--store DIR] SRC NAME        a rootfs (tar, directory) or an image (archive, layout)
//	demesne-images commit [--store DIR] [--layers N] [--change JSON] DIGEST NAME   an image, and layers on descriptors from 3 on
//	demesne-images save   [--store DIR] [--format oci|docker] NAME DST
//	demesne-images push   [--store DIR] [--compression FORMAT] … NAME DEST     the passphrase of --sign-by on descriptor 3
//	demesne-images login  [--store DIR] --username USER REGISTRY              the password on descriptor 3
//	demesne-images logout [--store DIR] REGISTRY|all
//	demesne-images export [--store DIR] NAME DST        a root file system as one tar
//	demesne-images unpack [--store DIR]                 stdin: one layer (JSON) a line
//	demesne-images sweep  [--store DIR]                 stdin: one DiffID to keep a line
//	demesne-images compress [--store DIR]               the layers of built images, after the build and in the background
//
// DST is an existing file or a pipe: demesne itself creates and names files.
//
// unpack and sweep run as root of a user namespace with a runner's id map, and give up access to everything but
// the store. The other commands run as the caller, and their stdin is a lifeline: they stop when the caller
// closes it or dies. Downloaded data is kept, so that the next pull resumes.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"demesne/images/compression"
	"demesne/images/pull"
	"demesne/internal/cmdline"
)

// command is one verb.
type command struct {
	cmdline.Command
	args  int  // exact number of operands
	feeds bool // stdin is data, not a lifeline
	run   func(*call) error
}

// commands returns the verbs, whose flags set c.
func (c *call) commands() []command {
	store := cmdline.Flag{Group: cmdline.GroupGeneral, Long: "store", Arg: "DIR", Complete: cmdline.Directory, Set: c.option("store"),
		Help: "directory of the image store (default $DEMESNE_IMAGE_STORE or ~/.demesne/images)"}
	with := func(name, usage, summary string, flags ...cmdline.Flag) cmdline.Command {
		return cmdline.Command{Program: programName, Name: name, Usage: []string{"[flags] " + usage}, Summary: summary,
			About: "demesne runs this command. It prints events as JSON on stdout, one per line.", Flags: append(cmdline.Flags{store}, flags...)}
	}
	flag := func(name, value, help string) cmdline.Flag {
		return cmdline.Flag{Group: cmdline.GroupGeneral, Long: name, Arg: value, Set: c.option(name), Help: help}
	}
	authfile, verify := flag("authfile", "FILE", "file with credentials"), flag("tls-verify", "BOOL", "require a trusted certificate")
	return []command{
		{Command: with("pull", "REF", "pull an image from a registry, an archive or a layout",
			flag("platform", "OS/ARCH", "platform of the image, where there are several"), flag("as", "NAME", "name of the image in the store"),
			flag("username", "USER", "pull as this user, with the password on descriptor 3")), args: 1, run: (*call).pullImage},
		{Command: with("fetch", "DIGEST", "download the blobs of an image that gc dropped"), args: 1, run: (*call).fetchImage},
		{Command: with("feature", "REF", "copy a dev container feature from a registry"), args: 1, run: (*call).pullFeature},
		{Command: with("import", "SRC NAME", "make an image of a root filesystem or an archive"), args: 2, run: (*call).importImage},
		{Command: with("commit", "DIGEST NAME", "add layers, on descriptors from 3 on, to an image",
			flag("layers", "N", "number of layers"), flag("change", "JSON", "change of the configuration")), args: 2, run: (*call).commitImage},
		{Command: with("save", "NAME DST", "write an image as an archive",
			flag("format", "FORMAT", "oci or docker (default oci)")), args: 2, run: (*call).saveImage},
		{Command: with("export", "NAME DST", "write an image's root filesystem as one tar"), args: 2, run: (*call).exportImage},
		{Command: with("push", "NAME DEST", "copy an image to a registry", authfile, verify,
			flag("compression", "FORMAT", "gzip, zstd or none"), flag("compression-level", "N", "level of the compression"),
			flag("sign-by", "FILE", "sigstore private key, with its passphrase on descriptor 3")), args: 2, run: (*call).pushImage},
		{Command: with("login", "REGISTRY", "check and store the password on descriptor 3", authfile, verify,
			flag("username", "USER", "user name")), args: 1, run: (*call).login},
		{Command: with("logout", "REGISTRY", "remove a stored password, or all", authfile), args: 1, run: (*call).logout},
		{Command: with("unpack", "", "unpack the layers on stdin, one JSON object a line"), feeds: true, run: (*call).unpackLayers},
		{Command: with(compression.Verb, "", "compress the layers of built images, for a later push"), feeds: true, run: (*call).compressLayers},
		{Command: with("sweep", "", "remove unpacked layers except the DiffIDs on stdin"), feeds: true, run: (*call).sweepLayers},
		{Command: with("remove-cache", "", "remove the caches of builds on stdin"), feeds: true, run: (*call).removeCaches},
	}
}

const programName = "demesne-images"

// description describes all commands, for help.
func description() *cmdline.Program {
	p := &cmdline.Program{Name: programName, Summary: "do image work for demesne",
		About: "Pulls, pushes, imports, unpacks and writes images for demesne, which starts this program. Users call demesne pull, push, import, save and export."}
	for _, c := range (&call{}).commands() {
		p.Commands = append(p.Commands, c.Command)
	}
	return p
}

// Main executes the command line of the process, and exits.
func Main() {
	pull.Quiet()
	// Bound the memory that a registry or a file can make the libraries allocate.
	_ = syscall.Setrlimit(rlimitData, &syscall.Rlimit{Cur: maxMemory, Max: maxMemory})
	if text, ok := description().Answer(os.Args[1:]); ok {
		fmt.Print(text)
		return
	}
	os.Exit(run(os.Args[1:]))
}

const (
	rlimitData = 2 // RLIMIT_DATA, setrlimit(2)
	maxMemory  = 2 << 30
)

// run executes a command and returns the exit status, which agrees with the last event.
func run(argv []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer stop()
	c := &call{ctx: ctx, out: newReporter(os.Stdout)}
	cmd, err := c.parse(argv)
	if errors.Is(err, cmdline.ErrHelp) {
		fmt.Print(cmd.Help(cmdline.Terminal{}.Width()))
		return 0
	}
	if err == nil {
		if !cmd.feeds {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go lifeline(os.Stdin, cancel)
			c.ctx = ctx
		}
		err = cmd.run(c)
	}
	if err != nil {
		c.out.fail(err)
		return 1
	}
	return 0
}

// lifeline calls end once the caller closes r or dies.
func lifeline(r io.Reader, end func()) {
	_, _ = io.Copy(io.Discard, r)
	end()
}

// parse finds the command, and parses its flags and its exact number of arguments.
func (c *call) parse(argv []string) (command, error) {
	if len(argv) == 0 {
		return command{}, usage("no command given")
	}
	all := c.commands()
	i := slices.IndexFunc(all, func(k command) bool { return k.Name == argv[0] })
	if i < 0 {
		return command{}, usage("unknown command %q", argv[0])
	}
	rest, err := all[i].Parse(argv[1:])
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		return all[i], err
	case err != nil:
		return all[i], usage("%s: %v", all[i].Name, err)
	case len(rest) != all[i].args:
		return all[i], usage("%s: %d arguments, not %d", all[i].Name, len(rest), all[i].args)
	}
	c.args, c.dir = rest, c.options["store"]
	return all[i], nil
}
