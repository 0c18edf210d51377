package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session"
	"demesne/session/cow"
)

// Stop returns demesne stop.
func Stop() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "stop", Usage: []string{"[--grace DURATION] ID…"}, Summary: "end the processes of sandboxes, and keep their files",
			About: `Ends all processes in the sandboxes, and keeps their files. Each process first gets the image's stop signal (SIGTERM if
it has none). Remaining ones are killed after --grace.

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

// stopHabits are flags of docker stop.
func stopHabits() map[string]string {
	const grace = "use --grace DURATION"
	return map[string]string{"-t": grace, "--time": grace, "--timeout": grace}
}

type stopOptions struct {
	*app.App
	grace time.Duration
}

// defaultGrace is the grace of docker stop.
const defaultGrace = 10 * time.Second

func (o *stopOptions) Flags() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "grace", Arg: "DURATION", Set: o.setGrace,
		Help: "how long the processes have to end before they are killed, 0 to kill them at once (default 10s)"}}
}

func (o *stopOptions) setGrace(s string) error {
	if s == "0" || s == "0s" {
		o.grace = 0
		return nil
	}
	return cmdline.Duration(&o.grace)(s)
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

// Remove returns demesne rm.
func Remove() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "rm", Usage: []string{"[--force] ID…", "--group NAME"}, Summary: "remove sandboxes and their files",
			About: `Ends all processes in the sandboxes, and removes the sandboxes with their files. It removes stopped sandboxes and
snapshots too. Output directories remain, unless they are empty.`,
			Examples: []cmdline.Example{
				{Says: "remove one sandbox", Line: "demesne rm build"},
				{Says: "remove all sandboxes", Line: "demesne ls -q | xargs -r demesne rm --force"},
				{Says: "remove all sandboxes that were made with --group shop", Line: "demesne rm --group shop"},
			},
			Operand: cmdline.Sandbox,
		},
		New: func(a *app.App) app.Options { return &removeOptions{App: a} },
	}
}

type removeOptions struct {
	*app.App
	force bool
	group string
}

func (o *removeOptions) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "group", Arg: "NAME", Set: launch.SetGroup(&o.group), Help: "remove the sandboxes of a group, all at once"},
		{Group: cmdline.GroupGeneral, Long: "force", Short: 'f', Set: cmdline.On(&o.force), Help: "ignore sandboxes that do not exist"},
	}
}

// Run removes each sandbox. With --force it ignores those that do not exist.
func (o *removeOptions) Run(args []string) (int, error) {
	if o.group != "" {
		return o.removeGroup(args)
	}
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

// removeGroup removes all sandboxes of the group.
func (o *removeOptions) removeGroup(args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("--group: unexpected argument %q", args[0])
	}
	return o.WithSession(func(ctx context.Context, s *session.Service) (int, error) {
		ids, err := s.RemoveGroup(ctx, o.group)
		if err == nil && len(ids) == 0 && !o.force {
			err = text.Hinted(fmt.Errorf("group %q: it has no sandboxes", o.group), "demesne ls lists sandboxes; a group's are named NAME.GROUP")
		}
		return 0, err
	})
}

// eachSandbox calls do for each sandbox, and reports every failure.
func eachSandbox(a *app.App, ids []string, do func(context.Context, *session.Service, string) error) (int, error) {
	if len(ids) == 0 {
		return 0, text.Hinted(errors.New("needs the name of a sandbox"), "demesne ls lists sandboxes")
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
