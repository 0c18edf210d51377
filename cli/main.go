// Package cli is the program demesne, which runs untrusted commands in rootless sandboxes.
//
//	demesne run -- CMD        run one command in a one-shot sandbox
//	demesne create / exec     create a persistent sandbox, and run commands in it
//	demesne pull / images     root filesystems other than the host's own
//	demesne egress / mcp      what sandboxes may reach; an MCP server for agents
//	demesne check             which features sandboxes get on this machine
//
// Each noun has a package with its verbs: run, sandbox, image, network, agent, server, machine. None of them imports another.
// They share app (the frame of a verb), stream (pipes, terminal, signals), progress, changes and launch (flags → a
// sandbox and a command in it). This package has the table of verbs, help and completion.
//
// This program does not create sandboxes itself. It reads its arguments and finds or starts demesne-runner,
// both through package client. It hands the runner a description of the sandbox and the ends of pipes. It
// copies between those pipes and the caller's own stdin, stdout and stderr.
//
// It does not pull or unpack images either. Package images reads the store, and starts demesne-images for
// anything that has to be fetched.
//
// A sandbox never holds a descriptor of the caller's terminal, sockets or files. As streams it gets pipes,
// /dev/null or a terminal created inside the sandbox.
//
// All output follows one rule: stdout belongs to the command, or to the requested answer. Messages of demesne
// itself go to stderr, as one line "demesne: verb noun: reason". If the user can type a remedy, a second line
// "hint: …" follows. demesne has no configuration file.
//
// The exit code is the command's own, with these exceptions:
//
//	2      demesne has no such command
//	124    the command ran into --timeout
//	125    demesne could not do what was asked
//	126    the command exists and cannot be executed
//	127    the command was not found
//	128+n  the command was ended by signal n (137: also a limit, which stderr names)
package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/run"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/procself"
	"demesne/session"
)

// Main executes the command line of the process, and exits.
func Main() {
	// Keep the owner's bits out of the umask: without them this program could not reopen its own lock files.
	unix.Umask(unix.Umask(0o077) &^ 0o700)
	procself.OwnHome()
	a := &app.App{
		Console: app.Console{Files: stream.Files{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, Env: os.LookupEnv},
		Images:  session.OpenImages,
		Quit:    procself.DefaultSIGQUIT(),
	}
	if err := procself.Room(); err != nil {
		os.Exit(a.Report("", err))
	}
	a.OwnState()
	os.Exit(execute(a, os.Args[1:]))
}

// execute runs one command line and returns the exit code.
func execute(a *app.App, args []string) int {
	if len(args) == 0 {
		if _, err := a.Print(program().Overview(a.Width())); err != nil {
			return a.Report("", err)
		}
		return 0
	}
	switch args[0] {
	case "-h", "--help":
		args = []string{"help"}
	case "--version":
		args = []string{"version"}
	}
	if args[0] == run.AttendVerb && len(args) >= 2 {
		return run.Attend(a, args[1], args[2:]...)
	}
	if args[0] == completionVerb && len(args) == 2 {
		return completionWords(a, args[1])
	}
	c, err := lookup(args[0])
	if err != nil {
		return a.Report("", err)
	}
	code, err := executeVerb(a, c, args[1:])
	if err != nil {
		return a.Report(c.Name, err)
	}
	return code
}

// executeVerb runs c, or prints its help if --help is among the flags.
func executeVerb(a *app.App, c *app.Verb, args []string) (int, error) {
	args, err := a.WithProject(c, args)
	if err != nil {
		return 0, err
	}
	line, o := c.Line(a, args)
	rest, err := line.Parse(args)
	code := 0
	if err == nil {
		code, err = o.Run(rest)
	}
	if errors.Is(err, cmdline.ErrHelp) {
		return a.Print(line.Help(a.Width()))
	}
	return code, err
}
