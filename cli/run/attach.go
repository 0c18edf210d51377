package run

import (
	"context"
	"errors"
	"strings"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/jobs"
	"demesne/session"
)

// Attach returns demesne attach.
func Attach() app.Verb {
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
		New: func(a *app.App) app.Options { return &attachOptions{Options: launch.Options{App: a}} },
	}
}

// shellCommand runs bash if it is in the sandbox, or else sh.
var shellCommand = []string{"/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"}

type attachOptions struct{ launch.Options }

func (o *attachOptions) Run(args []string) (int, error) {
	id, err := app.OneSandbox(args)
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(id, "job-") {
		t := jobTool{o.App}
		return t.each(args, t.follow)
	}
	o.TTY, o.Interactive = true, true
	j, err := o.NewExecution(shellCommand)
	if err != nil {
		return 0, err
	}
	return j.Finish(attach(j, id))
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
func attach(j *launch.Execution, id string) error {
	s := j.Options.Session(nil)
	defer s.Close()
	b, err := s.Open(j.Sig.Ctx, id, j.Options.Callbacks(j.Sig, &j.Stages, nil))
	if err != nil {
		return err
	}
	p, recent, err := b.Attach(j.Sig.Ctx)
	var e *ipc.Error
	switch {
	case errors.As(err, &e) && e.Code == ipc.CodeNoSuchCommand && j.Term.Fd < 0:
		return text.Hinted(err, "on a terminal this starts a shell; without one, use demesne exec -i %s -- sh", id)
	case e != nil && e.Code == ipc.CodeNoSuchCommand:
		return j.Ended(s.Exec(j.Sig.Ctx, b.ID, j.RunOptions(), session.Callbacks{}))
	case e != nil && e.Code == ipc.CodeBusy:
		return text.Hinted(err, "detach there with Ctrl-P Ctrl-Q, or start a shell beside it: demesne exec -t %s -- sh", id)
	case err != nil:
		return err
	}
	j.Started = true
	j.Sig.Attach(p, func() {})
	p.Resize(j.Term.Size()) // also makes a full-screen program redraw itself
	return j.OverTerminal(p, recent)
}
