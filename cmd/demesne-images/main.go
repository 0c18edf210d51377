// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-images does the image work that a run does not need: registries, archives, unpacking. demesne
// starts it. Package events defines their protocol: JSON on stdout, one event a line, the last one "result" or
// "error".
//
//	demesne-images pull   [--store DIR] [--platform OS/ARCH] REF
//	demesne-images import [--store DIR] SRC NAME        a rootfs (tar, directory) or an image (archive, layout)
//	demesne-images commit [--store DIR] [--layers N] [--change JSON] DIGEST NAME   an image, and layers on descriptors from 3 on
//	demesne-images save   [--store DIR] [--format oci|docker] NAME DST
//	demesne-images export [--store DIR] NAME DST        a root file system as one tar
//	demesne-images unpack [--store DIR]                 stdin: one layer (JSON) a line
//	demesne-images sweep  [--store DIR]                 stdin: one DiffID to keep a line
//
// DST is an existing file or a pipe: demesne itself creates and names files.
//
// unpack and sweep run as root of a user namespace with a runner's id map, and give up access to everything but
// the store. The other commands run as the caller, and their stdin is a lifeline: they stop when the caller
// closes it or dies. Downloaded data is kept, so that the next pull resumes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/sirupsen/logrus"

	"demesne/images"
	"demesne/images/events"
)

// command is one sub-command.
type command struct {
	name  string
	args  int      // exact number of arguments
	flags []string // besides --store
	feeds bool     // stdin is data, not a lifeline
	run   func(*call) error
}

var commands = []command{
	{name: "pull", args: 1, flags: []string{"platform"}, run: pullImage},
	{name: "import", args: 2, run: importImage},
	{name: "commit", args: 2, flags: []string{"layers", "change"}, run: commitImage},
	{name: "save", args: 2, flags: []string{"format"}, run: saveImage},
	{name: "export", args: 2, run: exportImage},
	{name: "unpack", feeds: true, run: unpackLayers},
	{name: "sweep", feeds: true, run: sweepLayers},
	{name: "version", run: printVersion},
}

// call is one invocation of a command.
type call struct {
	ctx     context.Context
	args    []string
	options map[string]string
	dir     string // the store's directory
	out     *reporter
}

func main() {
	logrus.SetOutput(io.Discard) // discard the libraries' logging: their errors carry what matters
	// Bound the memory that a registry or a file can make the libraries allocate.
	_ = syscall.Setrlimit(rlimitData, &syscall.Rlimit{Cur: mostMemory, Max: mostMemory})
	os.Exit(run(os.Args[1:]))
}

const (
	rlimitData = 2 // RLIMIT_DATA, setrlimit(2)
	mostMemory = 2 << 30
)

// run executes a command and returns the exit status, which agrees with the last event.
func run(argv []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer stop()
	c := &call{ctx: ctx, out: newReporter(os.Stdout)}
	cmd, err := c.parse(argv)
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

// usage returns an error for a wrong invocation.
func usage(format string, args ...any) error {
	return &events.Failure{Code: events.CodeInvalid, Text: fmt.Sprintf(format, args...)}
}

// parse finds the command, and parses its flags and its exact number of arguments.
func (c *call) parse(argv []string) (command, error) {
	if len(argv) == 0 {
		return command{}, usage("no command given")
	}
	i := slices.IndexFunc(commands, func(k command) bool { return k.name == argv[0] })
	if i < 0 {
		return command{}, usage("unknown command %q", argv[0])
	}
	cmd := commands[i]
	set := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&c.dir, "store", "", "")
	values := map[string]*string{}
	for _, name := range cmd.flags {
		values[name] = set.String(name, "", "")
	}
	if err := set.Parse(argv[1:]); err != nil {
		return cmd, usage("%s: %v", cmd.name, err)
	}
	if set.NArg() != cmd.args {
		return cmd, usage("%s: %d arguments, not %d", cmd.name, set.NArg(), cmd.args)
	}
	c.args, c.options = set.Args(), map[string]string{}
	for name, v := range values {
		c.options[name] = *v
	}
	return cmd, nil
}

// store opens the image store.
func (c *call) store() (*images.Store, error) {
	if c.dir == "" {
		dir, err := images.DefaultDir()
		if err != nil {
			return nil, err
		}
		c.dir = dir
	}
	store, err := images.Open(c.dir)
	if err == nil {
		c.dir = store.Dir()
	}
	return store, err
}
