// Package machine has the verbs about this machine and all that runs on it: check, top, audit and gc.
//
// They show, and change no sandbox. check and top ask the runner, audit reads the log that demesne serve writes, and gc removes
// data that nothing uses: images, unpacked layers, outputs, jobs and logs. What a sandbox, a pull or another user uses is
// locked (flock(2)), and stays.
package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// Check returns demesne check.
func Check() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "check", Usage: []string{"[--pod] [--json]"}, Summary: "report which features sandboxes get on this machine",
			About: `Tests each feature that sandboxes use, and reports it as held, degraded or missing. For a feature that is not held it gives
the reason, and a command that fixes it. Exits 1 if a feature is missing.

At the end it makes a sandbox on the host's files, and reports the level that demesne run has. It also says what that
level is good for, and what it lacks. With --json it reports only the features.

With --pod, in a pod of Kubernetes, it prints only the lines that the pod's spec lacks, and the features that each line gives. It
exits 1 if a line is missing.`,
			Examples: []cmdline.Example{
				{Says: "report as a table", Line: "demesne check"},
				{Says: "report as JSON", Line: "demesne check --json"},
				{Says: "print what a pod's spec lacks", Line: "kubectl exec POD -- demesne check --pod"},
			},
		},
		New: func(a *app.App) app.Options { return &checkOptions{App: a} },
	}
}

type checkOptions struct {
	*app.App
	json, pod bool
}

func (o *checkOptions) Flags() cmdline.Flags {
	return append(app.JSONFlag(&o.json), cmdline.Flag{Group: app.GroupResult, Long: "pod", Set: cmdline.On(&o.pod), Help: "print the lines that this pod's spec lacks"})
}

func (o *checkOptions) Run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	return o.WithSession(func(ctx context.Context, s *session.Service) (code int, err error) {
		var probes []runner.Probe
		err = s.With(ctx, func(eng session.Engine) error { probes, err = eng.Check(ctx); return err })
		if err != nil && o.json && !o.pod {
			return 0, err
		}
		if err != nil {
			probes = client.Obstacles(err)
		}
		if o.pod {
			return o.printPod(probes)
		}
		if slices.ContainsFunc(probes, func(p runner.Probe) bool { return p.Status == runner.Missing }) {
			code = 1
		}
		if o.json {
			_, err = o.PrintJSON(append([]runner.Probe{}, probes...))
			return code, err
		}
		on := cmdline.TerminalOf(o.Stdout, o.Env)
		table := probeTable(probes, on)
		if err != nil {
			_, err = o.Print(table + "\ndemesne run fails here\n")
			return code, err
		}
		_, err = o.Print(table + verdict(tryRun(ctx, s)))
		return code, err
	})
}

// printPod prints what the spec of this pod lacks. The code is 1 if it lacks a line.
func (o *checkOptions) printPod(probes []runner.Probe) (code int, err error) {
	lines, err := podHere(probes)
	if err != nil {
		return 0, err
	}
	if o.json {
		_, err = o.PrintJSON(append([]podLine{}, lines...))
	} else {
		_, err = o.Print(podText(lines))
	}
	return min(len(lines), 1), err
}

// tryRun returns the receipt of a one-shot sandbox on the host's files: what demesne run gets.
func tryRun(ctx context.Context, s *session.Service) (*runner.Receipt, error) {
	done, err := s.Run(ctx, session.CreateOptions{}, session.RunOptions{Command: runner.Command{Argv: []string{"true"}, Account: true}}, session.Callbacks{})
	if err != nil {
		return nil, err
	}
	return done.Receipt, nil
}

// verdict says which level a run has, and what that level is good for.
func verdict(r *runner.Receipt, err error) string {
	if err != nil || r == nil {
		return fmt.Sprintf("\ndemesne run fails here: %s\n", text.SafeLine(fmt.Sprint(err)))
	}
	var layers, limits, lines []string
	add := func(to *[]string, name string, s runner.Status, why, fix string) {
		if s != runner.Degraded && s != runner.Missing {
			return
		}
		*to = append(*to, name)
		line := fmt.Sprintf("    %s: %s\n", name, text.SafeLine(cmp.Or(why, string(s))))
		if fix != "" && !strings.HasPrefix(fix, "demesne check") { // the table above has that one
			line += fmt.Sprintf("    fix: %s\n", text.SafeLine(fix))
		}
		lines = append(lines, line)
	}
	for _, l := range r.Layers {
		add(&layers, l.Name, l.Status, l.Why, l.Fix)
	}
	for _, l := range r.Limits {
		add(&limits, l.Name+" limit", l.Status, l.Why, l.Fix)
	}
	return fmt.Sprintf("\ndemesne run has level %s here: %s\n", r.Level, judgement(r.Level, layers)) + strings.Join(lines, "")
}

// judgement returns what a level is good for. layers names the layers that are not held.
func judgement(level runner.Level, layers []string) string {
	switch {
	case level == runner.LevelFull:
		return "good for untrusted code"
	case level == runner.LevelMinimal:
		return "not good for hostile code, because there are no namespaces"
	case len(layers) == 0:
		return "good for untrusted code; limits below are enforced late"
	}
	return "weaker against hostile code: " + strings.Join(layers, ", ")
}

func probeTable(probes []runner.Probe, on cmdline.Terminal) string {
	var all []app.Finding
	for _, p := range probes {
		all = append(all, app.Finding{Name: p.Name, Status: p.Status, Detail: p.Detail, Why: p.Why, Fix: p.Fix})
	}
	return app.Findings("", all, on)
}
