package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Forks returns the verbs about the files of persistent sandboxes.
func Forks() []app.Verb {
	return []app.Verb{
		{
			Command: cmdline.Command{
				Name: "fork", Usage: []string{"[--name NAME] [--out DIR] [--publish PORT:INSIDE] ID"}, Summary: "make a sandbox from the files of another",
				About: `Makes a sandbox that starts with the files of another sandbox or of a snapshot, and prints its id. The two share these
files until one of them writes. Processes are not forked.

demesne copies nothing if the other sandbox is stopped, or has neither processes nor a network. Otherwise it copies the
files that the sandbox wrote since its last fork without a copy. On btrfs and xfs the copies share contents. The sandbox
continues during the copy, and then pauses while the latest changes are copied; stderr reports for how long.

A fork publishes only the ports that --publish gives. stderr names the ports of the other sandbox.`,
				Examples: []cmdline.Example{{Says: "try something in a copy", Line: "demesne fork --name try build; demesne exec try -- make"}},
				Operand:  cmdline.Sandbox,
			},
			New: func(a *app.App) app.Options { return &forkOptions{App: a} },
		},
		{
			Command: cmdline.Command{
				Name: "snapshot", Usage: []string{"[--name NAME] ID"}, Summary: "save the files of a sandbox",
				About: `Saves the files of a sandbox, so that demesne fork can start from them, and prints the id of the snapshot. A snapshot does
not expire; demesne rm removes it. The files of a sandbox with processes are copied, as in demesne fork.`,
				Examples: []cmdline.Example{{Says: "save before a change, and go back", Line: "demesne snapshot --name before build; demesne fork --name again before"}},
				Operand:  cmdline.Sandbox,
			},
			New: func(a *app.App) app.Options { return &snapshotOptions{App: a} },
		},
		{
			Command: cmdline.Command{
				Name: "diff", Usage: []string{"[--json] [ID]", "--patch [ID] [PATH…]"}, Summary: "list the files that a sandbox changed",
				About: `Lists the files that a sandbox added (A), modified (M) or deleted (D), compared with its image. It marks files that
programs of this machine would execute after a copy: git hooks, startup files of shells, package scripts. Files in
/out and in a --workspace are not listed.

ID may also name changes that --workspace DIR:cow, --mount DIR:cow or --here=cow kept apart. Then the paths are on this
machine. demesne apply makes them. Without ID, diff shows such changes if one sandbox has some. It lists the ids if
several have, and with --json.

--patch shows what changed in their files: all of them, or those at and below each PATH. On a terminal the text has colours
and goes through $PAGER, or less. It only names binary files and files larger than 1 MiB. It is for reading: control characters
are spelled out.`,
				Examples: []cmdline.Example{
					{Says: "list the changes", Line: "demesne diff build"},
					{Says: "read what a command would have changed here", Line: "demesne run --here=cow -- make; demesne diff --patch"},
				},
				Operand: cmdline.Sandbox,
			},
			New: func(a *app.App) app.Options { return &diffOptions{App: a} },
		},
	}
}

type snapshotOptions struct {
	*app.App
	launch.LifeOptions
}

type forkOptions struct {
	*app.App
	launch.LifeOptions
	out     string
	network launch.Network
}

func (o *forkOptions) Flags() cmdline.Flags {
	return cmdline.Flags{o.NameFlag(), launch.OutFlag(&o.out), *o.network.Flags().Long("publish")}
}

func (o *forkOptions) Run(args []string) (int, error) {
	from, err := app.OneSandbox(args)
	if err != nil {
		return 0, err
	}
	return o.WithSession(func(ctx context.Context, s *session.Service) (int, error) {
		f, err := s.Fork(ctx, from, o.Name, o.out, o.network.Publish)
		if err != nil {
			return 0, err
		}
		return tellForked(&o.Console, ctx, s, "fork", f)
	})
}

func (o *snapshotOptions) Flags() cmdline.Flags { return cmdline.Flags{o.NameFlag()} }

func (o *snapshotOptions) Run(args []string) (int, error) {
	from, err := app.OneSandbox(args)
	if err != nil {
		return 0, err
	}
	return o.WithSession(func(ctx context.Context, s *session.Service) (int, error) {
		var f runner.Forked
		err := s.With(ctx, func(eng session.Engine) (err error) { f, err = eng.Snapshot(ctx, from, o.Name); return err })
		if err != nil {
			return 0, err
		}
		return tellForked(&o.Console, ctx, s, "snapshot", f)
	})
}

// tellStill is the pause of a forked sandbox from which it is reported.
const tellStill = 20 * time.Millisecond

// tellForked prints the new id, and reports the copy and pause of the source. It asks the runner about the fork
// last: the runner removes a fork whose id was never acknowledged.
func tellForked(c *app.Console, ctx context.Context, s *session.Service, verb string, f runner.Forked) (int, error) {
	if still := time.Duration(f.Still).Round(time.Millisecond); f.Copied > 0 || still > tellStill {
		c.Say(fmt.Sprintf("%s: copied %s: it has processes or a network; it was paused for %v", verb, text.FormatBytes(f.Copied), still))
	}
	if len(f.Unpublished) > 0 {
		c.Say(verb + ": ports not published by the fork: " + listenersText(f.Unpublished) + "; use --publish to publish ports of the fork")
	}
	code, err := c.Print(f.ID + "\n")
	if code == 0 && err == nil {
		s.Inspect(ctx, f.ID) // acknowledges the fork; the answer does not matter
	}
	return code, err
}

// listenersText lists the addresses that ports listen on.
func listenersText(ports []runner.Port) string {
	var at []string
	for _, p := range ports {
		at = append(at, p.Listen)
	}
	return strings.Join(at, ", ")
}
