// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-egress parses policies for demesne. It links parsers of TOML and YAML, internationalised
// names and the public suffix list, which would slow down every run without a network. demesne starts it, or
// executes it in its own place.
//
//	demesne-egress rules [--mode MODE] [--file FILE]   the rules of a run; see package session/egress
//	demesne-egress list [--json] [MODE]                the modes, or what one allows here
//	demesne-egress lint FILE…                          the errors in policy files
//	demesne-egress log [--json] LOG                    a run's decisions, for reading
//	demesne-egress suggest [--json] LOG                the policy file that a run would have needed
//	demesne-egress replay [--json] POLICY LOG          what a policy would have blocked
//	demesne-egress toml                                whether stdin is TOML; if not, the first invalid line
//
// It reads files and the environment, and uses no network. Like demesne it prints the answer on stdout, and an
// error as one line on stderr. It exits 1 if the answer is that something is wrong, and 125 if it has no
// answer.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"demesne/internal/procself"
	"demesne/internal/termsafe"
)

// Exit codes, as in demesne.
const (
	exitWrong  = 1
	exitFailed = 125
)

func main() {
	procself.DefaultSIGQUIT()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// command is one verb. Its run function returns the exit code.
type command struct {
	name        string
	least, most int // number of arguments
	run         func(*call) (int, error)
}

var commands = []command{
	{"rules", 0, 0, giveRules},
	{"list", 0, 1, list},
	{"lint", 1, 1 << 20, lint},
	{"log", 1, 1, showLog},
	{"suggest", 1, 1, suggest},
	{"replay", 2, 2, replay},
	{"toml", 0, 0, checkTOML},
}

// call is one invocation of a command.
type call struct {
	in         io.Reader
	out        io.Writer
	args       []string
	json       bool
	mode, file string
	host       host
}

func run(argv []string, in io.Reader, out, errs io.Writer) int {
	c := &call{in: in, out: out, host: thisHost()}
	cmd, err := c.parse(argv)
	code := exitFailed
	if err == nil {
		code, err = cmd.run(c)
	}
	if err != nil {
		fmt.Fprintf(errs, "demesne: egress %s: %s\n", cmd.name, termsafe.Line(err.Error()))
		return exitFailed
	}
	return code
}

func (c *call) parse(argv []string) (command, error) {
	if len(argv) == 0 {
		return command{}, fmt.Errorf("no command given")
	}
	i := slices.IndexFunc(commands, func(k command) bool { return k.name == argv[0] })
	if i < 0 {
		return command{}, fmt.Errorf("command %q: not known", argv[0])
	}
	cmd := commands[i]
	set := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.BoolVar(&c.json, "json", false, "")
	set.StringVar(&c.mode, "mode", "", "")
	set.StringVar(&c.file, "file", "", "")
	if err := set.Parse(argv[1:]); err != nil {
		return cmd, err
	}
	c.args = set.Args()
	if len(c.args) < cmd.least || len(c.args) > cmd.most {
		return cmd, fmt.Errorf("%d arguments, not %d", len(c.args), cmd.least)
	}
	return cmd, nil
}
