package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

func stepFlags(o *stepOptions) cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupCommand, Long: "commands", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.commands),
			Help: "run the commands of a JSON file, or of stdin if FILE is -, one after the other until one fails: an array of objects with shell or argv, and perhaps cwd, env, timeout_ms and allow_failure"},
		{Group: app.GroupCommand, Long: "continue-on-error", Set: cmdline.On(&o.goOn),
			Help: "with --commands: run all of them, even if one fails"},
	}
}

// readSteps reads the list of --commands.
func (o *runOptions) readSteps(args []string) error {
	switch {
	case o.commands == "" && o.goOn:
		return errors.New("--continue-on-error: needs --commands")
	case o.commands == "":
		return nil
	case len(args) > 0 || o.Shell != nil || o.Entrypoint != nil || o.language.Name != "" && len(o.dependencies) == 0:
		return errors.New("--commands: cannot be combined with a command, -c, --entrypoint or --language")
	case o.Interactive || o.TTY || o.Asked != nil || o.Services != nil:
		return errors.New("--commands: cannot be combined with -i, -t, --devcontainer or --init")
	case o.commands == "-" && o.background:
		return errors.New("--commands -: cannot be combined with --background")
	case o.list != nil:
		return nil
	}
	raw, err := o.ReadCode(o.commands)
	if err == nil {
		o.list, err = runner.ParseSteps(raw)
	}
	if err != nil {
		return text.Hinted(fmt.Errorf("commands %q: %w", o.commands, err), `such as [{"shell": "make | tail"}, {"argv": ["make", "test"], "cwd": "/workspace", "env": {"A": "1"}, "timeout_ms": 60000, "allow_failure": true}]`)
	}
	return nil
}

// batch runs a list of commands for an execution, each with an execution of its own.
type batch struct {
	*command
	cancel context.CancelFunc
	each   []*launch.Execution
}

// steps runs the list of --commands in a sandbox, and makes the first failure, or the last command, the result.
func (j *command) steps(s *session.Service, id string, cb session.Callbacks) error {
	b := &batch{command: j}
	ctx, cancel := context.WithCancel(j.Sig.Ctx)
	defer cancel()
	b.cancel = cancel
	opts := j.runOptions()
	opts.Steps.List, opts.Steps.GoOn, opts.Steps.Each, opts.Steps.Done = j.o.list, j.o.goOn, b.streams, b.done
	all, err := opts.ExecSteps(ctx, s, id, cb)
	interrupted := j.Sig.Interrupted()
	if len(all) > 0 && interrupted {
		err = nil
	}
	if len(all) == 0 || err != nil {
		return err
	}
	last := all[len(all)-1]
	if at := slices.IndexFunc(all, func(r *session.RunResult) bool { return r.Failed }); at >= 0 && !interrupted {
		last = all[at]
	}
	result := *last.Result
	if !last.Failed && !interrupted {
		result.ExitCode, result.Reason, result.Signal, result.Detail = 0, runner.Exited, 0, ""
	}
	j.Result = &result
	return nil
}

// streams returns the streams of a command.
func (b *batch) streams(i int) session.Streams {
	j := &launch.Execution{Options: &b.o.Options, Began: time.Now(), Sig: b.Sig, Term: &stream.Terminal{Fd: -1}, Over: make(chan struct{})}
	if b.Kept != nil {
		j.Kept = &stream.Capture{}
	}
	b.each = append(b.each, j)
	return j
}

// done reports a command.
func (b *batch) done(r *session.RunResult) {
	b.Started = true
	one := launch.Listed{Index: r.Step, Command: b.o.list[r.Step].Text(), Failed: r.Failed,
		ExitCode: r.ExitCode, Signal: r.Signal, Reason: r.Reason, Detail: r.Detail, Seconds: r.Seconds, Spent: r.Spent}
	if kept := b.each[len(b.each)-1].Kept; kept != nil {
		one.Written = kept.Written()
	}
	if b.Doc != nil {
		b.Doc.Commands = append(b.Doc.Commands, one)
	}
	if r.ExitCode != 0 {
		b.o.Say(fmt.Sprintf("%s: commands[%d]: %s", b.o.Verb, r.Step, howFailed(r)))
	}
	if b.Sig.Interrupted() {
		b.cancel()
	}
}

func howFailed(r *session.RunResult) string {
	how := fmt.Sprintf("exit code %d", r.ExitCode)
	if line := app.ReasonLine(how, r.Result); line != "" {
		how = line
	} else if r.Detail != "" {
		how += ": " + r.Detail
	}
	if !r.Failed {
		how += " (allowed)"
	}
	return how
}
