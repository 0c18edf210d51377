// The runtime would open the cgroup's CPU limit and keep watching it: nothing here
// computes.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne runs untrusted commands in rootless sandboxes.
//
//	demesne run -- CMD        one command in a sandbox of its own
//	demesne create / exec     a sandbox that stays, and commands in it
//	demesne pull / images     root filesystems other than the host's own
//	demesne egress / mcp      what they may reach; the same for agents
//	demesne check             what this machine lets a sandbox have
//
// This program makes no sandbox. It reads its arguments, finds or starts
// demesne-runner (package client does both), hands it a description of the sandbox
// and the ends of pipes, and copies between those pipes and the caller's own
// stdin, stdout and stderr. Nor does it pull or unpack: package images reads the store,
// and starts demesne-images for what has to be fetched. A sandbox never holds a descriptor of the caller's
// terminal, sockets or files; of streams it gets pipes, /dev/null or a terminal
// made inside.
//
// What it prints follows one rule: stdout belongs to the command, or to the answer
// that was asked for. Everything demesne itself has to say goes to stderr, as one
// line "demesne: verb noun: reason" and, where something can be typed about it, a
// second one "hint: …". It has no configuration file.
//
// Exit codes are the command's own, with these exceptions:
//
//	124    the command ran into --timeout
//	125    demesne could not do what was asked
//	126    the command is there and cannot be executed
//	127    the command is not there
//	128+n  the command was ended by signal n (137: also a limit, which stderr names)
package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/session/base"
	"demesne/images"
	"demesne/internal/rootenv"
	"demesne/internal/sigquit"
	"demesne/runner/client"
)

func main() {
	// What is ours stays ours: without its owner's bits in the umask nobody could open a lock twice.
	unix.Umask(unix.Umask(0o077) &^ 0o700)
	rootenv.Own()
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		env:     os.LookupEnv,
		connect: connectRunner,
		images:  base.Images,
		quit:    sigquit.ByDefault(),
	}
	os.Exit(a.main(os.Args[1:]))
}

// app is the program's surroundings. Tests make their own.
type app struct {
	stdin, stdout, stderr *os.File
	env                   func(string) (string, bool)
	connect               func(context.Context, client.Options) (engine, error)
	images                func() (*images.Client, error)
	quit                  *sigquit.Action // what was there for SIGQUIT
	floor                 floor
}

// main runs one command line and returns the exit code.
func (a *app) main(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(a.stderr, overview())
		return exitFailed
	}
	switch args[0] {
	case "-h", "--help":
		args = []string{"help"}
	case "--version":
		args = []string{"version"}
	}
	if args[0] == attendVerb && len(args) == 2 {
		return a.attend(args[1])
	}
	c, err := lookup(args[0])
	if err != nil {
		return a.report("", err)
	}
	o := &options{verb: c.name, line: args[1:]}
	code, err := a.command(c, o, args[1:])
	if o.help {
		code, err = a.print(c.help())
	}
	if err != nil {
		return a.report(c.name, err)
	}
	return code
}

// command runs c. It has done nothing yet when it finds --help among the flags.
func (a *app) command(c *command, o *options, args []string) (int, error) {
	rest, err := c.arguments(o, args)
	if err != nil || o.help {
		return 0, err
	}
	return c.run(a, o, rest)
}
