package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/internal/termsafe"
	"demesne/runner"
)

// forkCommands returns the verbs about the files of persistent sandboxes.
func forkCommands() []command {
	return []command{
		{
			name: "fork", usage: []string{"[--name NAME] [--out DIR] [--publish PORT:INSIDE] ID"}, summary: "make a sandbox of another one's files",
			about: `Makes a sandbox that starts with the files of another one, or of a snapshot, and prints its id. It
shares them, so their size does not matter; what either writes from then on is its own. Processes are not forked.
Of a sandbox that has processes, or a network, what it wrote since a fork without any is copied, file for file, where the
file system shares contents (btrfs, xfs) without those. It goes on meanwhile, and then holds still while what it changed
since is copied again; stderr says for how long. demesne stop before spares the copy.
A fork publishes the ports it is given here, and none of the other's; stderr names those it goes without.`,
			examples: []example{{"to try something", "demesne fork --name try build; demesne exec try -- make"}},
			flags:    forkFlags, operand: aSandbox, run: cmdFork,
		},
		{
			name: "snapshot", usage: []string{"[--name NAME] ID"}, summary: "keep a sandbox's files as they are",
			about: `Keeps the files of a sandbox as they are, to fork from, and prints an id. A snapshot does not
expire; demesne rm removes it. A sandbox that has processes is copied, as by fork.`,
			examples: []example{{"before a change, and back to it", "demesne snapshot --name before build; demesne fork --name again before"}},
			flags:    snapshotFlags, operand: aSandbox, run: cmdSnapshot,
		},
		{
			name: "diff", usage: []string{"[--json] ID"}, summary: "tell what a sandbox changed",
			about: `Lists the files that a sandbox added (A), modified (M) or deleted (D), compared with its image, and
marks those that programs of this machine would execute if they were taken there: git hooks, files that
shells read, package scripts. What it wrote to /out or a --workspace is not among them.`,
			examples: []example{{"for reading", "demesne diff build"}},
			flags:    jsonFlag, operand: aSandbox, run: cmdDiff,
		},
		commitCommand(),
	}
}

func snapshotFlags(o *options) flagSet {
	return flagSet{*sandboxFlags(o).find(func(f *flagDef) bool { return f.long == "name" })}
}

func forkFlags(o *options) flagSet {
	return join(snapshotFlags(o), flagSet{
		*sandboxFlags(o).find(func(f *flagDef) bool { return f.long == "out" }),
		*networkFlags(&o.network).find(func(f *flagDef) bool { return f.long == "publish" }),
	})
}

// oneSandbox returns the operand of a command that takes exactly one sandbox.
func oneSandbox(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", hinted(errors.New("needs the name of a sandbox"), "demesne ls lists the sandboxes there are")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q", args[1])
	}
	return args[0], nil
}

func cmdFork(a *app, o *options, args []string) (int, error) {
	from, err := oneSandbox(args)
	if err != nil {
		return 0, err
	}
	return a.with(func(ctx context.Context, eng engine) (int, error) {
		out, err := prepareOut(o.out)
		if err != nil {
			return 0, err
		}
		f, err := eng.Fork(ctx, from, o.name, out.path, o.network.publish...)
		if err == nil {
			err = a.roomFor(ctx, eng, f.ID)
		}
		if err != nil {
			out.undo()
			return 0, err
		}
		return a.tellForked(ctx, eng, "fork", f)
	})
}

func cmdSnapshot(a *app, o *options, args []string) (int, error) {
	from, err := oneSandbox(args)
	if err != nil {
		return 0, err
	}
	return a.with(func(ctx context.Context, eng engine) (int, error) {
		f, err := eng.Snapshot(ctx, from, o.name)
		if err != nil {
			return 0, err
		}
		return a.tellForked(ctx, eng, "snapshot", f)
	})
}

// tellStill is the pause of a forked sandbox from which it is reported.
const tellStill = 20 * time.Millisecond

// tellForked prints the new id, and reports the copy and pause of the source. It asks the runner about the fork
// last: the runner removes a fork whose id was never acknowledged.
func (a *app) tellForked(ctx context.Context, eng engine, verb string, f runner.Forked) (int, error) {
	if still := time.Duration(f.Still).Round(time.Millisecond); f.Copied > 0 || still > tellStill {
		a.say(fmt.Sprintf("%s: copied %s: it has processes or a network; it held still for %v", verb, formatBytes(f.Copied), still))
	}
	if len(f.Unpublished) > 0 {
		a.say(verb + ": ports that are not published: " + listenersText(f.Unpublished) + "; --publish gives a fork its own")
	}
	code, err := a.print(f.ID + "\n")
	if code == 0 && err == nil {
		eng.Inspect(ctx, f.ID) // acknowledges the fork; the answer does not matter
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

func cmdDiff(a *app, o *options, args []string) (int, error) {
	id, err := oneSandbox(args)
	if err != nil {
		return 0, err
	}
	return a.with(func(ctx context.Context, eng engine) (int, error) {
		d, err := eng.Diff(ctx, id)
		if err != nil {
			return 0, err
		}
		if o.json {
			d.Changes = append([]runner.Change{}, d.Changes...) // never null
			return a.printJSON(d)
		}
		return a.print(diffText(d))
	})
}

// diffText returns one line for each change. Names come from the sandbox; they are escaped so that they cannot
// forge lines.
func diffText(d *runner.Diff) string {
	var b strings.Builder
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "%s %s", c.Kind, termsafe.Line(string(c.Path)))
		if c.Executes != "" {
			fmt.Fprintf(&b, "  (executed by %s)", c.Executes)
		}
		b.WriteByte('\n')
	}
	if d.Truncated {
		b.WriteString("… and more\n")
	}
	return b.String()
}
