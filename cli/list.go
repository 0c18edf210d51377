package cli

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

func (o *sandboxListOptions) flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupResult, Long: "all", Short: 'a', Set: cmdline.On(&o.all),
		Help: "also list the sandboxes of builds that run now"}}, app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the ids"))
}

func (o *sandboxListOptions) run(args []string) (int, error) {
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

func (o *inspectOptions) run(args []string) (int, error) {
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

func (o *stopOptions) flags() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "grace", Arg: "DURATION", Set: o.setGrace,
		Help: "how long the processes have to end before they are killed, 0 to kill them at once (default 10s)"}}
}

// run ends the processes of all sandboxes at the same time, and keeps their files.
func (o *stopOptions) run(args []string) (int, error) {
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

func (o *rmOptions) flags() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "force", Short: 'f', Set: cmdline.On(&o.force), Help: "ignore sandboxes that do not exist"}}
}

// run removes each sandbox. With --force it ignores those that do not exist.
func (o *rmOptions) run(args []string) (int, error) {
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
