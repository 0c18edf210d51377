package selftest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"demesne/internal/cmdline"
)

// Options is the command line of demesne selftest.
type Options struct {
	JSON, Control  bool
	Cases, Targets []string
}

// Command describes demesne selftest.
func Command(o *Options) *cmdline.Command {
	return &cmdline.Command{
		Program: "demesne", Name: "selftest", Usage: []string{"[--case CASE]… [--target TARGET]… [--control] [--json]"}, Summary: "try attacks in a sandbox of this machine",
		About: `Tries attacks of docs/security/cases.md in a sandbox that it removes, and reports each as contained, not contained or not
applicable here. A probe touches files, sockets, processes and keys that selftest makes, or makes a call that the kernel
refuses. Exits 1 if an attack was not contained in demesne.

Another target is bwrap, podman, srt, or the beginning of a command line that runs a program in a sandbox. --control runs
the probes without a sandbox, and so shows which of them can fail on this machine.`,
		Examples: []cmdline.Example{
			{Says: "try this machine", Line: "demesne selftest"},
			{Says: "compare with another program", Line: "demesne selftest --target demesne --target bwrap"},
			{Says: "show that the probes can fail", Line: "demesne selftest --control"},
		},
		Flags: cmdline.Flags{
			{Long: "case", Arg: "CASE", Set: func(s string) error { o.Cases = append(o.Cases, s); return nil }, Help: "try this case only, such as N14; may be repeated"},
			{Long: "target", Arg: "TARGET", Set: func(s string) error { o.Targets = append(o.Targets, s); return nil }, Help: "demesne (default), bwrap, podman, srt or a command; may be repeated"},
			{Long: "control", Set: cmdline.On(&o.Control), Help: "run the probes without any sandbox"},
			{Long: "json", Set: cmdline.On(&o.JSON), Help: "print JSON"},
		},
	}
}

// Main runs demesne selftest, or the program inside.
func Main() {
	if len(os.Args) > 2 && os.Args[1] == probeVerb {
		if err := insideMain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "demesne: selftest:", err)
			os.Exit(1)
		}
		return
	}
	o := &Options{}
	line := Command(o)
	rest, err := line.Parse(os.Args[1:])
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		fmt.Print(line.Help(80))
		return
	case err == nil && len(rest) > 0:
		err = fmt.Errorf("unexpected argument %q", rest[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demesne: selftest:", err)
		os.Exit(2)
	}
	code, err := run(context.Background(), o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demesne: selftest:", err)
		code = 125
	}
	os.Exit(code)
}

// insideMain is the program inside: all probes of some cases, or one of them, or a process that waits.
func insideMain(args []string) error {
	index, isOne := strings.CutPrefix(args[0], "-one=")
	switch {
	case args[0] == "-wait":
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case isOne && len(args) == 2:
		i, err := strconv.Atoi(index)
		all := probes()
		if err != nil || i < 0 || i >= len(all) {
			return fmt.Errorf("no probe %q", index)
		}
		f := &facts{}
		if err := json.Unmarshal([]byte(args[1]), f); err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(all[i].outcome(all[i].try(f)))
	}
	var cases []string
	if len(args) > 1 && args[1] != "" {
		cases = strings.Split(args[1], ",")
	}
	return inside(args[0], cases, os.Stdout)
}

// report is the result for one target.
type report struct {
	Target   string    `json:"target"`
	Outcomes []outcome `json:"outcomes"`
	Error    string    `json:"error,omitempty"`
}

func run(ctx context.Context, o *Options, out io.Writer) (code int, err error) {
	for _, c := range o.Cases {
		if !slices.ContainsFunc(probes(), func(p probe) bool { return p.id == c }) {
			return 0, fmt.Errorf("no probe of case %q", c)
		}
	}
	targets := o.Targets
	if o.Control {
		targets = append([]string{""}, targets...)
	} else if len(targets) == 0 {
		targets = []string{"demesne"}
	}
	var all []report
	for _, target := range targets {
		s, err := newScene()
		if err != nil {
			return 0, fmt.Errorf("prepare: %w", err)
		}
		r := report{Target: target}
		if r.Outcomes, err = inSandbox(ctx, target, s, o.Cases); err != nil {
			r.Error, code = err.Error(), 1
		}
		s.end()
		if target == "demesne" && slices.ContainsFunc(r.Outcomes, func(o outcome) bool { return o.Verdict == escaped }) {
			code = 1
		}
		if target == "" {
			r.Target = "no sandbox"
		}
		all = append(all, r)
	}
	if o.JSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return code, e.Encode(all)
	}
	return code, table(all, out)
}

// table prints a row for each probe, and a column for each target.
func table(all []report, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "CASE\tATTACK")
	for _, r := range all {
		fmt.Fprint(w, "\t"+strings.ToUpper(r.Target))
	}
	fmt.Fprintln(w)
	for i, o := range first(all) {
		fmt.Fprint(w, o.Case+"\t"+o.Title)
		for _, r := range all {
			cell := "-"
			if i < len(r.Outcomes) {
				cell = string(r.Outcomes[i].Verdict)
				if len(all) == 1 {
					cell += "\t" + r.Outcomes[i].Why
				}
			}
			fmt.Fprint(w, "\t"+cell)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		count := map[verdict]int{}
		for _, o := range r.Outcomes {
			count[o.Verdict]++
		}
		fmt.Fprintf(out, "%s: %d contained, %d not contained, %d not applicable\n", r.Target, count[contained], count[escaped], count[notApplicable])
		if r.Error != "" {
			fmt.Fprintf(out, "%s: %s\n", r.Target, r.Error)
		}
	}
	return nil
}

// first returns the outcomes of the first target whose probes ran.
func first(all []report) []outcome {
	for _, r := range all {
		if len(r.Outcomes) > 0 {
			return r.Outcomes
		}
	}
	return nil
}
