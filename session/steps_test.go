package session

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// single is an Engine with one sandbox. Its commands write their last argument to stdout and exit with the number that it
// begins with; "missing" is not found.
type single struct {
	chain
	specs []runner.Spec
}

func (e *single) connect(context.Context, client.Options) (Engine, error) { return e, nil }

func (e *single) Create(_ context.Context, spec runner.Spec) (*Sandbox, error) {
	e.specs = append(e.specs, spec)
	sb := &Sandbox{Sandbox: &client.Sandbox{ID: "sb", Out: spec.Out}}
	sb.Exec = func(_ context.Context, cmd runner.Command) (Process, error) {
		if cmd.Argv[0] == "missing" {
			return nil, ipc.Errorf(ipc.CodeCommandNotFound, "execute: not found")
		}
		return say(runner.Command{Argv: cmd.Argv[len(cmd.Argv)-1:], Stdout: cmd.Stdout}), nil
	}
	return sb, nil
}

func (e *single) Open(ctx context.Context, _ string) (*Sandbox, error) {
	return e.Create(ctx, runner.Spec{})
}

func (e *single) Exec(ctx context.Context, _ string, cmd runner.Command) (*Sandbox, Process, error) {
	sb, _ := e.Create(ctx, runner.Spec{})
	p, err := sb.Exec(ctx, cmd)
	return sb, p, err
}

func (e *single) Inspect(context.Context, string) (*runner.Info, error) {
	return nil, errors.New("gone")
}

func TestRunSteps(t *testing.T) {
	for _, c := range []struct {
		list string
		goOn bool
		want string // exit codes, with ! for a failure that ends the list
	}{
		{`[{"argv":["0"]},{"argv":["0"]}]`, false, "0 0"},
		{`[{"argv":["2"]},{"argv":["0"]}]`, false, "2!"},
		{`[{"argv":["2"]},{"argv":["0"]}]`, true, "2! 0"},
		{`[{"argv":["2"],"allow_failure":true},{"argv":["missing"],"allow_failure":true},{"argv":["missing"]},{"argv":["0"]}]`, false, "2 127 127!"},
	} {
		e := &single{}
		s := New(Options{OutputRoot: t.TempDir(), Connect: e.connect})
		list, err := runner.ParseSteps([]byte(c.list))
		if err != nil {
			t.Fatal(err)
		}
		r := RunOptions{}
		r.Steps.List, r.Steps.GoOn = list, c.goOn
		all, err := r.RunSteps(t.Context(), s, CreateOptions{}, Callbacks{})
		var got []string
		for _, d := range all {
			word := strconv.Itoa(d.ExitCode)
			if d.Failed {
				word += "!"
			}
			got = append(got, word)
		}
		if err != nil || strings.Join(got, " ") != c.want || e.specs[0].Lifetime != runner.Attached || len(e.removed) != 1 {
			t.Errorf("%s: %q, %v; removed %q", c.list, got, err, e.removed)
		}
		s.Close()
	}
}

func TestDenied(t *testing.T) {
	for _, c := range []struct{ list, command, want string }{
		{"", "docker", ""},
		{"standard", "docker ps", `\bdocker\b`},
		{"standard", "amount", ""},
		{"standard", "sh -c umount;mount /x", `\bmount\b`},
		{`a{2,3},b`, "aab", `a{2,3}`},
		{`x[,]y,b`, "x,y", `x[,]y`},
		{` , rm\s+-rf , `, "rm  -rf", `rm\s+-rf`},
		{"(", "x", "is not a regular expression"},
	} {
		o := Options{Getenv: func(string) string { return c.list }}
		err := o.denied(&runner.Command{Argv: strings.Split(c.command, " ")})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v", c.list, c.command, err)
		}
	}
	o := Options{Getenv: func(string) string { return "mount" }}
	if err := o.denied(&runner.Command{Argv: []string{"x"}, Else: [][]string{{"mount"}}}); err == nil {
		t.Error("a further command line is not compared")
	}
}
