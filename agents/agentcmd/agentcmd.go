// Package agentcmd is the command lines of demesne agent run and demesne research. cli shows and completes them, and package
// agents/headless executes them.
package agentcmd

import (
	"errors"
	"strconv"

	"demesne/agents"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session/places"
)

// Options holds one command line.
type Options struct {
	Request    agents.Request // without Prompt and Inputs
	Inputs     []string       // PATH[:NAME]
	Out        string
	Continue   string // id of an earlier run
	Background bool
	On         string // place of the job; empty: this machine
	JSON       bool
}

// ProgramHint is the hint for an agent whose program this machine lacks.
const ProgramHint = "install it in a directory of PATH, or give an image that contains it: --image NAME"

const (
	groupTask   = "Task"
	groupBounds = "Bounds"
)

// Flags returns the flags of demesne agent run, or of demesne research, bound to o.
func (o *Options) Flags(research bool) cmdline.Flags {
	r := &o.Request
	task := cmdline.Flags{
		{Group: groupTask, Long: "model", Arg: "NAME", Set: cmdline.Text(&r.Model),
			Help: "the model, which also selects the agent's program (default the first that this machine has a credential for)"},
		{Group: groupTask, Long: "preamble", Arg: "TEXT", Set: cmdline.Text(&r.Preamble),
			Help: "put this text before all instructions"},
		{Group: groupTask, Long: "output-path", Arg: "PATH", Set: cmdline.Text(&r.OutputPath),
			Help: "file in /out that the agent must write"},
		{Group: groupTask, Long: "output-format", Arg: "TEXT", Set: cmdline.Text(&r.OutputFormat),
			Help: "what that file must look like"},
		{Group: groupTask, Long: "criterion", Arg: "TEXT", Repeat: true, Set: cmdline.List(&r.SuccessCriteria, nil),
			Help: "condition that the agent must check before it ends"},
		{Group: groupTask, Long: "image", Arg: "NAME", Complete: cmdline.Image, Set: o.setImage,
			Help: "take the agent's program and the root filesystem from an image: a name, a reference, or dir:ROOTFS (default this machine's; without an installation, an image that demesne builds)"},
		{Group: groupTask, Long: "out", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&o.Out),
			Help: "directory for /out (default a new one in $DEMESNE_OUTPUT_ROOT or ~/.demesne/out)"},
	}
	if !research {
		task = append(task, cmdline.Flag{Group: groupTask, Long: "script", Arg: "TEXT", Set: cmdline.Text(&r.Script),
			Help: "run this shell text in place of a coding agent, without a model or a credential, to try a run; $1 is the prompt, stdout the answer"},
			cmdline.Flag{Group: groupTask, Long: "continue", Arg: "ID", Set: cmdline.Text(&o.Continue),
				Help: "resume the session of an earlier run, with its files and settings: the id of its job, or the name that it printed"},
			cmdline.Flag{Group: groupTask, Long: "in", Arg: "PATH[:NAME]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.Inputs, nil),
				Help: "show a file or directory, read-only, at /in/NAME (default its own name)"},
			cmdline.Flag{Group: groupTask, Long: "egress", Arg: "MODE", Words: runner.ClosedModes(), Set: func(s string) error { r.Egress = s; return checkMode(s) },
				Help: "destinations in addition to the model: " + text.Or(runner.ClosedModes()) + " (default none)"},
			cmdline.Flag{Group: groupTask, Long: "allow-domain", Arg: "NAME[:PORT]", Repeat: true, Set: cmdline.List(&r.Domains, nil),
				Help: "also allow this destination, as in demesne run"},
			cmdline.Flag{Group: groupTask, Long: "allow-research", Set: cmdline.On(&r.AllowResearch),
				Help: "let the agent start research agents, which have the whole network and could send what the agent tells them to anyone"},
			cmdline.Flag{Group: groupTask, Long: "workspace", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&r.Workspace),
				Help: "directory for /workspace, writable; files that this machine would execute later are read-only (default a new one)"})
	}
	return append(task,
		cmdline.Flag{Group: groupBounds, Long: "max-cost", Arg: "DOLLARS", Set: cost(&r.MaxCost),
			Help: "end the agent, with its children, when they cost more"},
		cmdline.Flag{Group: groupBounds, Long: "max-tokens", Arg: "N", Set: tokens(&r.MaxTokens),
			Help: "end them when they use more tokens: input, cached or not, and output"},
		cmdline.Flag{Group: groupBounds, Long: "max-turns", Arg: "N", Set: turns(&r.MaxTurns),
			Help: "end them when they make more requests to the model"},
		cmdline.Flag{Group: groupBounds, Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&r.Timeout),
			Help: "end them after this time: 30s, 5m, 1h30m, or seconds (default never)"},
		cmdline.Flag{Group: groupBounds, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&r.Limits.Memory),
			Help: "memory limit of each sandbox, or none (default half of the machine's)"},
		cmdline.Flag{Group: groupBounds, Long: "disk", Arg: "SIZE", Set: cmdline.Disk(&r.Limits.Disk),
			Help: "limit for what is written to each of /, /out and /workspace, or none (default 2g)"},
		cmdline.Flag{Group: groupTask, Long: "on", Arg: "PLACE", Set: func(s string) (err error) { o.On, err = places.Parse(s); return err },
			Help: "run on a machine of a cluster, as a job: slurm, slurm:PARTITION, kubernetes, kubernetes:NAMESPACE, ray, ray:ADDRESS, or local (the default)"},
		cmdline.Flag{Group: groupOutcome, Long: "background", Set: cmdline.On(&o.Background),
			Help: "start a background job, and print its id; see logs, wait, jobs and cancel"},
		cmdline.Flag{Group: groupOutcome, Long: "json", Set: cmdline.On(&o.JSON),
			Help: "print events as JSON, one object a line, in place of text"})
}

const groupOutcome = "Result"

func (o *Options) setImage(s string) error {
	_, err := imageref.Parse(s)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // the name is in the message already
	}
	o.Request.Image = s
	return err
}

// checkMode checks the egress mode of an agent with inputs. Research is the verb for mode open.
func checkMode(s string) error {
	if s == runner.OpenEgress {
		return text.Hinted(errors.New("an agent with inputs cannot have the whole network"), "demesne research PROMPT starts one without inputs")
	}
	return cmdline.OneOf(s, runner.ClosedModes())
}

func cost(to *float64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n > 0) || n > 1e9 {
			return errors.New("not an amount in dollars (such as 2.50)")
		}
		*to = n
		return nil
	}
}

func tokens(to *int64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 {
			return errors.New("not a number of at least 1")
		}
		*to = n
		return nil
	}
}

func turns(to *int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return errors.New("not a number of at least 1")
		}
		*to = n
		return nil
	}
}

// Command returns the command line of demesne agent run, or of demesne research, whose flags set o. Program and
// Name name the verb of demesne.
func (o *Options) Command(research bool) *cmdline.Command {
	if research {
		return o.researchCommand()
	}
	return &cmdline.Command{
		Program: "demesne", Name: "agent run", Usage: []string{"[flags] PROMPT"},
		Summary: "run a coding agent on a task, without a terminal",
		About: `Runs the coding agent that MODEL selects in a sandbox, until its task is done. The final answer goes to stdout, and what
the agent does to stderr. With --json, all of it goes to stdout.

The agent sees its inputs in /in, works in /workspace, and writes results to /out, which remains. The transcript, the
usage and the results are there too. It can start further agents and commands in sandboxes of their own, which can do no
more than it can. Its credential stays outside of the sandbox.

With --workspace the agent changes one of your directories. Files there that programs of this machine would execute later,
such as git hooks, are read-only inside. At the end stderr names new ones, and other changed files of that kind.

With --continue the same session goes on, with the files, the image and the network that it had. Its bounds hold too, unless
you give others. It needs a program that resumes its sessions.

The exit code is the agent program's, 137 if a bound ended it, and 125 if it ended without doing its work.`,
		Examples: []cmdline.Example{
			{Says: "get an answer", Line: `demesne agent run "What does this repository do?" --in ~/src/app`},
			{Says: "get a file, for at most one dollar", Line: `demesne agent run "Translate /in/letter.txt into French." --in letter.txt --output-path letter.fr.txt --max-cost 1`},
			{Says: "change a project, with the program of an image", Line: `demesne agent run --workspace . --image local/agents "Make the tests pass."`},
			{Says: "try what a run is like, without a credential", Line: `demesne agent run --script 'wc -l < /in/data.txt' "Count the lines." --in data.txt`},
			{Says: "go on with an earlier run", Line: `demesne agent run --continue 20260728-101500-1f0c9a2b "Now explain it to a beginner."`},
			{Says: "run in the background, and watch", Line: `demesne logs -f $(demesne agent run --background "Find the bug in /in/app." --in app)`},
		},
		Flags: o.Flags(false),
	}
}

func (o *Options) researchCommand() *cmdline.Command {
	return &cmdline.Command{
		Program: "demesne", Name: "research", Usage: []string{"[flags] PROMPT"},
		Summary: "run a coding agent with the whole network and no inputs",
		About: `Runs a coding agent as demesne agent run does, with access to the whole network. It therefore gets no files of this
machine.`,
		Examples: []cmdline.Example{
			{Says: "find something out", Line: `demesne research "Which Linux releases have Landlock ABI 6?" --output-path answer.md`},
		},
		Flags: o.Flags(true),
	}
}
