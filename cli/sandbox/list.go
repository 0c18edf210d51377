// Package sandbox has the verbs about sandboxes that exist: ls, inspect, stop, rm, cp, fork, snapshot and diff, those about
// changes that are kept apart (apply and discard), and manifest.
//
// They ask the runner, or read a record, and print. Names and texts come from sandboxes, and are printed without control
// characters. What a copy may contain, and which changes can be applied, packages session and session/cow decide.
package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
)

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
		New: func(a *app.App) app.Options { return &listOptions{App: a} },
	}
}

type listOptions struct {
	*app.App
	all, json, quiet bool
}

func (o *listOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupResult, Long: "all", Short: 'a', Set: cmdline.On(&o.all),
		Help: "also list the sandboxes of builds that run now"}}, app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the ids"))
}

func (o *listOptions) Run(args []string) (int, error) {
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
