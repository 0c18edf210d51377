package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Exec returns demesne exec.
func Exec() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "exec", Usage: []string{"[flags] ID [--] CMD [ARG…]", "[flags] ID -c TEXT [ARG…]", "[flags] --key KEY -- CMD [ARG…]"},
			Summary: "run a command in a persistent sandbox",
			About: `Runs CMD in the sandbox ID, beside other commands that run there. ID can be a name. The exit codes are run's.

CMD can be a program's text on this machine, as in demesne run. If the sandbox does not show the file, it gets a copy
below /tmp.

Processes that CMD leaves in the background continue, but their output ends with CMD. If demesne is killed (SIGKILL),
CMD ends too. With a terminal it continues, and demesne attach returns to it.

A stopped sandbox is started again with its files and settings. Secrets are the exception, because no file stores
them: give them again, or stderr names the missing ones. A running sandbox that lacks a given secret runs nothing.

With --background, CMD is a job. demesne cancel then ends its process group, but not the sandbox.`,
			Examples: []cmdline.Example{
				{Says: "run a command", Line: "demesne exec build -- make test"},
				{Says: "get a shell", Line: "demesne exec -it build -- bash"},
				{Says: "start a job and wait for it", Line: "demesne wait $(demesne exec --background build -- make test)"},
				{Says: "start a server that continues", Line: `demesne exec build -c 'nohup ./server >/tmp/log 2>&1 &'`},
			},
			Operand: cmdline.Sandbox, Then: cmdline.Argv,
			Habits: execHabits,
		},
		New: func(a *app.App) app.Options { return &execOptions{runOptions{Options: launch.Options{App: a}}} },
	}
}

type execOptions struct{ runOptions }

func (o *execOptions) Flags() cmdline.Flags {
	return slices.Concat(o.CommandFlags(), o.languageFlag(), stepFlags(&o.stepOptions), o.EnvFileFlag(), o.jobOptions.flags(), queueFlag(&o.queue),
		o.KeyFlag("use the sandbox that was made with this key, instead of ID"), o.Network.SecretFlags(), o.ResultFlags())
}

func (o *execOptions) Run(args []string) (int, error) {
	if err := o.check(""); err != nil {
		return 0, err
	}
	x, err := o.newExec(args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		if err := o.isThere(args); err != nil {
			return 0, err
		}
		return jobTool{o.App}.start(&o.runOptions)
	}
	return x.finish()
}

func (o *execOptions) newExec(args []string) (*command, error) {
	id := ""
	if o.Key == "" {
		if len(args) == 0 || args[0] == "" {
			return nil, text.Hinted(errors.New("no sandbox given"), "demesne ls lists sandboxes")
		}
		id, args = args[0], args[1:]
	}
	if err := o.readSteps(args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		var err error
		if argv, err = o.Argv(o.Verb, args); err != nil {
			return nil, err
		}
	}
	if o.UserName != "" {
		return nil, fmt.Errorf("user %q: %w", o.UserName, launch.ErrUser)
	}
	return o.scripted(args, argv, func(c *command) error { return c.exec(id, args) })
}

// isThere checks that the sandbox of a background command exists.
func (o *execOptions) isThere(args []string) error {
	s, ctx := o.Session(nil), context.Background()
	defer s.Close()
	if o.Key != "" {
		_, err := ofKey(ctx, s, o.Key)
		return err
	}
	i, err := s.Inspect(ctx, args[0])
	if err == nil && (i.State == runner.Ended || i.State == runner.Snapshot) {
		err = text.Hinted(fmt.Errorf("sandbox %q: it cannot run commands: %s", args[0], i.State), "demesne ls lists sandboxes")
	}
	return err
}

// ofKey returns the id of the sandbox with that key.
func ofKey(ctx context.Context, s *session.Service, key string) (string, error) {
	id, err := s.OfKey(ctx, key)
	if app.NoSuchSandbox(err) {
		err = text.Hinted(err, "demesne run --key %s makes one", key)
	}
	return id, err
}

func (j *command) exec(id string, args []string) (err error) {
	if err := j.o.Network.CheckSecrets(); err != nil {
		return err
	}
	s := j.o.Session(nil)
	defer s.Close()
	if id == "" {
		if id, err = ofKey(j.Sig.Ctx, s, j.o.Key); err != nil {
			return err
		}
	}
	cb := j.o.Callbacks(j.Sig, &j.Stages, nil)
	if j.o.list != nil {
		return j.Ended(nil, j.steps(s, id, cb))
	}
	if j.script != nil {
		if err := j.bringScript(s, id, cb); err != nil {
			return err
		}
		j.script.command(&j.Cmd, oci.Config{}, j.Cmd.Argv, args)
		cb.Made = nil // it was called
	}
	return j.Ended(s.Exec(j.Sig.Ctx, id, j.runOptions(), cb))
}
