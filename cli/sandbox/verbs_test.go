package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
	"demesne/session"
)

// engine has sandboxes that are only descriptions.
type engine struct {
	session.Engine
	infos   []runner.Info
	mu      sync.Mutex
	stopped []string // "ID GRACE"
}

func (e *engine) List(context.Context) ([]runner.Info, error) { return slices.Clone(e.infos), nil }

func (e *engine) Stop(_ context.Context, id string, grace time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = append(e.stopped, id+" "+grace.String())
	return e.Remove(context.Background(), id)
}

func (e *engine) Remove(_ context.Context, id string) error {
	if !slices.ContainsFunc(e.infos, func(i runner.Info) bool { return i.ID == id }) {
		return ipc.Errorf(ipc.CodeNoSuchSandbox, "sandbox %q: no such sandbox", id)
	}
	return nil
}

func (e *engine) Inspect(ctx context.Context, id string) (*runner.Info, error) {
	return &runner.Info{ID: id}, e.Remove(ctx, id)
}

func (e *engine) Done() <-chan struct{} { return nil }

func (e *engine) Close() error { return nil }

// execute executes a line of a verb with an engine.
func execute(t *testing.T, v app.Verb, e *engine, line string) (code int, stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("DEMESNE_STATE", t.TempDir())
	out, err1 := os.Create(t.TempDir() + "/out")
	errs, err2 := os.Create(t.TempDir() + "/errs")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	a := &app.App{
		Console: app.Console{Files: stream.Files{Stdout: out, Stderr: errs}, Env: func(string) (string, bool) { return "", false }},
		Connect: func(context.Context, client.Options) (session.Engine, error) { return e, nil },
	}
	args := strings.Fields(line)
	command, o := v.Line(a, args)
	operands, err := command.Parse(args)
	if err == nil {
		code, err = o.Run(operands)
	}
	text := func(f *os.File) string {
		b, _ := os.ReadFile(f.Name())
		return string(b)
	}
	return code, text(out), text(errs), err
}

// TestListVerb checks which sandboxes ls lists, and in which forms.
func TestListVerb(t *testing.T) {
	e := &engine{infos: []runner.Info{{ID: "a", State: runner.Running}, {ID: "b", Spec: runner.Spec{Rootfs: &runner.Rootfs{Aside: true}}}}}
	for line, want := range map[string]string{"-q": "a\n", "--all -q": "a\nb\n"} {
		if code, out, _, err := execute(t, List(), e, line); code != 0 || out != want || err != nil {
			t.Errorf("ls %s: code %d, %q, %v", line, code, out, err)
		}
	}
	if _, out, _, err := execute(t, List(), &engine{}, "--json"); out != "[]\n" || err != nil {
		t.Errorf("ls --json of no sandbox: %q, %v", out, err)
	}
	if _, _, _, err := execute(t, List(), e, "a"); err == nil {
		t.Error("ls takes an operand")
	}
}

// TestStopVerb checks that stop asks for each sandbox, with the time of --grace, and reports those that fail.
func TestStopVerb(t *testing.T) {
	for line, grace := range map[string]string{"a x": "10s", "--grace 0 a x": "0s", "--grace 1m a x": "1m0s"} {
		e := &engine{infos: []runner.Info{{ID: "a"}}}
		code, _, errs, err := execute(t, Stop(), e, line)
		slices.Sort(e.stopped)
		if want := []string{"a " + grace, "x " + grace}; !slices.Equal(e.stopped, want) || err != nil {
			t.Errorf("stop %s: %q, %v; want %q", line, e.stopped, err, want)
		}
		if want := "demesne: stop: sandbox \"x\": no such sandbox\nhint: demesne ls lists sandboxes\n"; code != app.ExitFailed || errs != want {
			t.Errorf("stop %s: code %d, %q", line, code, errs)
		}
	}
}

// TestRemoveVerb checks that rm continues after a failure, and that --force ignores what does not exist.
func TestRemoveVerb(t *testing.T) {
	e := &engine{infos: []runner.Info{{ID: "a"}}}
	if code, _, errs, err := execute(t, Remove(), e, "x a"); code != app.ExitFailed || strings.Count(errs, "demesne: ") != 1 || err != nil {
		t.Errorf("rm x a: code %d, %q, %v", code, errs, err)
	}
	for _, line := range []string{"--force x a", "--force"} {
		if code, _, errs, err := execute(t, Remove(), e, line); code != 0 || errs != "" || err != nil {
			t.Errorf("rm %s: code %d, %q, %v", line, code, errs, err)
		}
	}
	if _, _, _, err := execute(t, Remove(), e, ""); err == nil {
		t.Error("rm of nothing")
	}
}
