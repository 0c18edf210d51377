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

	"demesne/internal/cmdline"
)

// Options is the command line of demesne selftest.
type Options struct {
	JSON, Markdown, Control bool
	Cases, Targets          []string
}

// Command describes demesne selftest.
func Command(o *Options) *cmdline.Command {
	return &cmdline.Command{
		Program: "demesne", Name: "selftest", Usage: []string{"[--case CASE]… [--target TARGET]… [--control] [--json|--markdown]"}, Summary: "try attacks in a sandbox of this machine",
		About: `Tries attacks of docs/security/cases.md in a sandbox that it removes, and reports each as contained, not contained or not
applicable here. A probe touches files, sockets, processes and keys that selftest makes, or makes a call that the kernel
refuses. Bombs of processes and memory have a sandbox each, and end after seconds. Exits 1 if an attack was not contained in demesne.

Another target is bwrap, podman, srt, or the beginning of a command line that runs a program in a sandbox. --control runs
the probes without a sandbox, and shows which of them can fail on this machine.`,
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
			{Long: "markdown", Set: cmdline.On(&o.Markdown), Help: "print a table in Markdown"},
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
		if all[i].apart {
			fmt.Println(began)
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
	switch {
	case o.JSON:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return code, e.Encode(all)
	case o.Markdown:
		return code, markdown(all, out)
	}
	return code, table(all, out)
}
