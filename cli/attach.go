package cli

import (
	"context"
	"errors"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/jobs"
	"demesne/session"
)

func attachCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "attach", Usage: []string{"ID | JOB"}, Summary: "return to the terminal of a command, or to a job",
			About: `Connects this terminal to the last command that demesne exec -t started in the sandbox ID. It first prints the last
64 KiB that the command wrote. If no command has a terminal, it starts a shell. A command continues without a client.

Ctrl-P Ctrl-Q leaves the command running, as in demesne exec -t.

For a background job it prints the output from the beginning, and exits as demesne wait does.`,
			Examples: []cmdline.Example{
				{Says: "start a program, leave it with Ctrl-P Ctrl-Q, and return", Line: "demesne exec -t build -- top; demesne attach build"},
				{Says: "watch a job", Line: "demesne attach $(demesne run --background -- make)"},
			},
			Operand: cmdline.Sandbox,
		},
		New: func(a *app.App) app.Bound {
			o := &attachOptions{options: options{App: a}}
			return app.Bound{Flags: nil, Run: o.run}
		},
	}
}

// shellCommand runs bash if the sandbox has it, or else sh.
var shellCommand = []string{"/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"}

// attachOptions are the options of attach.
type attachOptions struct{ options }

func (o *attachOptions) run(args []string) (int, error) {
	id, err := app.OneSandbox(args)
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(id, "job-") {
		t := jobTool{o.App}
		return t.each(args, t.follow)
	}
	o.tty, o.interactive = true, true
	j, err := o.newExecution(shellCommand)
	if err != nil {
		return 0, err
	}
	return j.finish(j.attach(id))
}

// follow is logs --follow with the exit code of wait.
func (t jobTool) follow(ctx context.Context, store *jobs.Store, id string) (int, error) {
	j, err := store.Follow(ctx, id, runner.JobKept, t.Stdout, t.Stderr)
	if err != nil || ctx.Err() != nil {
		return 0, err
	}
	return t.outcome(j), nil
}

// attach continues a command that has a terminal, or starts a shell.
func (j *execution) attach(id string) error {
	s := j.o.Session(j.o.network.source(&j.o.Console), nil)
	defer s.Close()
	b, err := s.Open(j.sig.Ctx, id, j.o.callbacks(j.sig, &j.stages, nil))
	if err != nil {
		return err
	}
	p, recent, err := b.Attach(j.sig.Ctx)
	var e *ipc.Error
	switch {
	case app.NoSuchSandbox(err) && j.term.Fd < 0:
		return app.Hinted(err, "on a terminal this starts a shell; without one, use demesne exec -i %s -- sh", id)
	case app.NoSuchSandbox(err):
		return j.ended(s.Exec(j.sig.Ctx, b.ID, j.runOptions(), session.Callbacks{}))
	case errors.As(err, &e) && e.Code == ipc.CodeBusy:
		return app.Hinted(err, "detach there with Ctrl-P Ctrl-Q, or start a shell beside it: demesne exec -t %s -- sh", id)
	case err != nil:
		return err
	}
	j.started = true
	j.sig.Attach(p, func() {})
	p.Resize(j.term.Size()) // also makes a full-screen program redraw itself
	return j.overTerminal(p, recent)
}
