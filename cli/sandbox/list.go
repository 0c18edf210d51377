// Package sandbox has the verbs about sandboxes that exist: ls, inspect, stop, rm, cp, fork, snapshot and diff, those about
// changes that are kept apart (apply and discard), and manifest.
//
// They ask the runner, or read a record, and print. Names and texts come from sandboxes, and are printed without control
// characters. What a copy may contain, and which changes can be applied, packages session and session/cow decide.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
	"demesne/session/cow"
)

// sandboxListOptions are the options of ls.
type sandboxListOptions struct {
	*app.App
	all, json, quiet bool
}

func (o *sandboxListOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupResult, Long: "all", Short: 'a', Set: cmdline.On(&o.all),
		Help: "also list the sandboxes of builds that run now"}}, app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the ids"))
}

func (o *sandboxListOptions) Run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	return o.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) {
		infos, err := eng.List(ctx)
		if err != nil {
			return 0, err
		}
		if !o.all {
			infos = slices.DeleteFunc(infos, func(i runner.Info) bool { return i.Spec.OfBuild() })
		}
		return app.PrintList(&o.Console, o.json, o.quiet, infos, func(i runner.Info) string { return i.ID }, listing)
	})
}

func listing(infos []runner.Info, now time.Time) string {
	rows := [][]string{{"ID", "NAME", "FRONTEND", "STATE", "AGE", "LEFT", "COMMANDS", "OUTPUT"}}
	for _, i := range infos {
		left := "-"
		if !i.Expires.IsZero() {
			left = app.Span(i.Expires.Sub(now).Round(time.Second))
		}
		name := i.Name
		if name == "" {
			name = "-"
		}
		age := "-"
		if !i.Created.IsZero() {
			age = app.Span(now.Sub(i.Created))
		}
		rows = append(rows, []string{i.ID, name, i.Spec.Frontends(), string(i.State), age, left, fmt.Sprint(i.Execs), i.Out})
	}
	return app.Columns(rows)
}

// inspectOptions are the options of inspect.
type inspectOptions struct {
	*app.App
	json bool
}

func (o *inspectOptions) Flags() cmdline.Flags { return app.JSONFlag(&o.json) }

func (o *inspectOptions) Run(args []string) (int, error) {
	if len(args) != 1 {
		return 0, app.Hinted(errors.New("needs the name of one sandbox"), "demesne ls lists sandboxes")
	}
	return o.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) {
		info, err := eng.Inspect(ctx, args[0])
		switch {
		case err != nil:
			return 0, err
		case o.json:
			return o.PrintJSON(info)
		}
		return o.Print(describe(info, cmdline.TerminalOf(o.Stdout, o.Env)))
	})
}

// defaultGrace is that of docker stop.
const defaultGrace = 10 * time.Second

func (o *stopOptions) setGrace(s string) error {
	if s == "0" || s == "0s" {
		o.grace = 0
		return nil
	}
	return cmdline.Duration(&o.grace)(s)
}

// stopOptions are the options of stop.
type stopOptions struct {
	*app.App
	grace time.Duration
}

func (o *stopOptions) Flags() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "grace", Arg: "DURATION", Set: o.setGrace,
		Help: "how long the processes have to end before they are killed, 0 to kill them at once (default 10s)"}}
}

// Run ends the processes of all sandboxes at the same time, and keeps their files.
func (o *stopOptions) Run(args []string) (int, error) {
	if len(args) == 0 {
		return eachSandbox(o.App, args, nil)
	}
	return o.WithSession(func(ctx context.Context, s *session.Service) (code int, _ error) {
		ended := make([]chan error, len(args))
		for i, id := range args {
			ended[i] = make(chan error, 1)
			go func() {
				ended[i] <- s.With(ctx, func(eng session.Engine) error { return eng.Stop(ctx, id, o.grace) })
			}()
		}
		for _, one := range ended {
			if err := <-one; err != nil {
				code = o.Report(o.Verb, err)
			}
		}
		return code, nil
	})
}

// rmOptions are the options of rm.
type rmOptions struct {
	*app.App
	force bool
}

func (o *rmOptions) Flags() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "force", Short: 'f', Set: cmdline.On(&o.force), Help: "ignore sandboxes that do not exist"}}
}

// Run removes each sandbox. With --force it ignores those that do not exist.
func (o *rmOptions) Run(args []string) (int, error) {
	if o.force && len(args) == 0 {
		return 0, nil // of a list that was empty
	}
	return eachSandbox(o.App, args, func(ctx context.Context, s *session.Service, id string) error {
		changes, _ := cow.Find(id)
		err := s.Remove(ctx, id)
		if err == nil {
			changes.DropEmpty()
		}
		if o.force && app.NoSuchSandbox(err) {
			return nil
		}
		return err
	})
}

// eachSandbox calls do for each sandbox, and reports every failure.
func eachSandbox(a *app.App, ids []string, do func(context.Context, *session.Service, string) error) (int, error) {
	if len(ids) == 0 {
		return 0, app.Hinted(errors.New("needs the name of a sandbox"), "demesne ls lists sandboxes")
	}
	return a.WithSession(func(ctx context.Context, s *session.Service) (code int, _ error) {
		for _, id := range ids {
			if err := do(ctx, s, id); err != nil {
				code = a.Report(a.Verb, err)
			}
		}
		return code, nil
	})
}

// stopHabits are flags of docker stop.
func stopHabits() map[string]string {
	const grace = "use --grace DURATION"
	return map[string]string{"-t": grace, "--time": grace, "--timeout": grace}
}

// List returns demesne ls.
func List() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "ls", Usage: []string{"[--all] [--json | -q]"}, Summary: "list sandboxes",
			About: `Lists the sandboxes of this user, the oldest first: running ones, stopped ones, and snapshots. --json and -q keep this order.
A build of an image has sandboxes of its own, and fails without them. They are listed with --all only.`,
			Examples: []cmdline.Example{
				{Says: "list all sandboxes", Line: "demesne ls"},
				{Says: "stop all sandboxes", Line: "demesne ls -q | xargs -r demesne stop"},
			},
		},
		New: func(a *app.App) app.Options { return &sandboxListOptions{App: a} },
	}
}

// Inspect returns demesne inspect.
func Inspect() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "inspect", Usage: []string{"[--json] ID"}, Summary: "show a sandbox and its receipt",
			About: `Shows the settings of a sandbox, and its receipt: what the kernel enforces. The receipt lists each layer, the id map, and
each limit with its mechanism. For a layer that is not fully enforced it gives the reason, and a command that fixes it.
ID can be a name.`,
			Examples: []cmdline.Example{
				{Says: "show it as a table", Line: "demesne inspect build"},
				{Says: "show it as JSON", Line: "demesne inspect --json build"},
			},
			Operand: cmdline.Sandbox,
		},
		New: func(a *app.App) app.Options { return &inspectOptions{App: a} },
	}
}

// Stop returns demesne stop.
func Stop() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "stop", Usage: []string{"[--grace DURATION] ID…"}, Summary: "end the processes of sandboxes, and keep their files",
			About: `Ends all processes in the sandboxes, and keeps their files. Each process first gets the image's stop signal (SIGTERM if
it has none). Those that are left after --grace are killed.

The next demesne exec starts a stopped sandbox again. demesne rm removes a sandbox with its files, and kills at once.`,
			Examples: []cmdline.Example{
				{Says: "stop one sandbox", Line: "demesne stop build"},
				{Says: "give a database a minute to write its files", Line: "demesne stop --grace 1m db"},
				{Says: "stop all sandboxes", Line: "demesne ls -q | xargs -r demesne stop"},
			},
			Operand: cmdline.Sandbox,
			Habits:  stopHabits,
		},
		New: func(a *app.App) app.Options { return &stopOptions{App: a, grace: defaultGrace} },
	}
}

// Remove returns demesne rm.
func Remove() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "rm", Usage: []string{"[--force] ID…"}, Summary: "remove sandboxes and their files",
			About: `Ends all processes in the sandboxes, and removes the sandboxes with their files. It removes stopped sandboxes and
snapshots too. Output directories remain, unless they are empty.`,
			Examples: []cmdline.Example{
				{Says: "remove one sandbox", Line: "demesne rm build"},
				{Says: "remove all sandboxes", Line: "demesne ls -q | xargs -r demesne rm --force"},
			},
			Operand: cmdline.Sandbox,
		},
		New: func(a *app.App) app.Options { return &rmOptions{App: a} },
	}
}
