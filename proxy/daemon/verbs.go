package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// Exit codes, as in demesne.
const (
	exitWrong  = 1
	exitFailed = 125
)

const programName = "demesne-proxy"

// command is one verb. Its run function returns the exit code.
type command struct {
	cmdline.Command
	least, most int // number of operands
	run         func(*call) (int, error)
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

// commands returns the verbs, whose flags set c.
func (c *call) commands() []command {
	with := func(name, usage, summary string, flags ...cmdline.Flag) cmdline.Command {
		return cmdline.Command{Program: programName, Name: name, Usage: []string{usage}, Summary: summary,
			About: "demesne runs this command. demesne help egress explains the commands for users.", Flags: flags}
	}
	text := func(to *string) func(string) error { return func(s string) error { *to = s; return nil } }
	asJSON := cmdline.Flag{Group: cmdline.GroupGeneral, Long: "json", Set: cmdline.On(&c.json), Help: "print JSON"}
	mode := cmdline.Flag{Group: cmdline.GroupGeneral, Long: "mode", Arg: "MODE", Set: text(&c.mode), Help: "mode of --egress (default the file's, or none)"}
	file := cmdline.Flag{Group: cmdline.GroupGeneral, Long: "file", Arg: "FILE", Complete: cmdline.File, Set: text(&c.file), Help: "policy file"}
	const many = 1 << 20
	return []command{
		{with("rules", "[--mode MODE] [--file FILE]", "print the rules of a run, as JSON", mode, file), 0, 0, (*call).giveRules},
		{with("list", "[--json] [MODE]", "list the modes, or the rules of one", asJSON), 0, 1, (*call).list},
		{with("lint", "FILE…", "report the errors in policy files", asJSON), 1, many, (*call).lint},
		{with("log", "[--json] LOG", "print the decisions of a run", asJSON), 1, 1, (*call).showLog},
		{with("suggest", "[--json] LOG", "print the policy that a run needs", asJSON), 1, 1, (*call).suggest},
		{with("replay", "[--json] POLICY LOG", "report what a policy denies of a log", asJSON), 2, 2, (*call).replay},
		{with("toml", "", "check that stdin is TOML"), 0, 0, (*call).checkTOML},
	}
}

// description describes all commands, for help.
func description() *cmdline.Program {
	p := &cmdline.Program{Name: programName, Summary: "decide what sandboxes may reach",
		About: "Serves the network of a runner's sandboxes, and reads policies and decision logs. demesne-runner and demesne start this program. Users call demesne egress."}
	for _, c := range (&call{}).commands() {
		p.Commands = append(p.Commands, c.Command)
	}
	return p
}

func run(argv []string, in io.Reader, out, errs io.Writer) int {
	if text, ok := description().Answer(argv); ok {
		io.WriteString(out, text)
		return 0
	}
	c := &call{in: in, out: out, host: thisHost()}
	cmd, err := c.parse(argv)
	if errors.Is(err, cmdline.ErrHelp) {
		io.WriteString(out, cmd.Help(cmdline.TerminalOf(os.Stdout, os.LookupEnv).Width()))
		return 0
	}
	code := exitFailed
	if err == nil {
		code, err = cmd.run(c)
	}
	if err != nil {
		fmt.Fprintf(errs, "demesne: egress %s: %s\n", cmd.Name, text.SafeLine(err.Error()))
		return exitFailed
	}
	return code
}

func (c *call) parse(argv []string) (command, error) {
	if len(argv) == 0 {
		return command{}, errors.New("no command given")
	}
	all := c.commands()
	i := slices.IndexFunc(all, func(k command) bool { return k.Name == argv[0] })
	if i < 0 {
		return command{}, &cmdline.UnknownError{Name: argv[0]}
	}
	rest, err := all[i].Parse(argv[1:])
	if err != nil {
		return all[i], err
	}
	if len(rest) < all[i].least || len(rest) > all[i].most {
		return all[i], fmt.Errorf("%d arguments, not %d", len(rest), all[i].least)
	}
	c.args = rest
	return all[i], nil
}
