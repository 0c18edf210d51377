package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/jobs"
)

// TestDirectory checks that a directory has a name that prune knows, and is kept while it is open or a sandbox uses
// a directory inside it.
func TestDirectory(t *testing.T) {
	root := t.TempDir()
	s := New(Options{OutputRoot: root})
	defer s.Close()
	job := &jobs.Job{ID: "job-0123abcd-0000-0000-0000-000000000000", Created: time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC)}
	d, err := s.NewDirectory(s.DirectoryOf(job))
	if err != nil || d.Name() != "20261122-190000-0123abcd" || !isOurs(d.Name()) {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := s.NewDirectory(d.Name()); err == nil {
		t.Error("the same name twice")
	}
	if err := os.Mkdir(d.Path+"/out", 0o700); err != nil {
		t.Fatal(err)
	}
	o := pruneOptions{before: time.Now().Add(time.Hour)}
	prune := func(out string, want int) {
		t.Helper()
		done, err := pruneOutputs(root, o, func() ([]runner.Info, error) { return []runner.Info{{ID: "x", Out: out}}, nil })
		if err != nil || done.Dirs != want {
			t.Errorf("used by %q: %+v, %v, want %d", out, done, err, want)
		}
	}
	prune("/elsewhere", 0)
	d.Close()
	prune(d.Path+"/out/child/a", 0)
	prune("/elsewhere", 1)
	if d, err = s.NewDirectory(""); err != nil {
		t.Fatal(err)
	}
	d.Undo()
	if names, _ := filepath.Glob(root + "/*"); len(names) != 0 {
		t.Errorf("left: %s", names)
	}
}

// TestOpenInside checks that a link in the path of an output directory that sandboxes can reach is refused.
func TestOpenInside(t *testing.T) {
	root := t.TempDir()
	os.Mkdir(root+"/real", 0o700)
	os.Symlink("real", root+"/planted")
	for name, ok := range map[string]bool{"real": true, "planted": false, "none": false} {
		o, err := openInside(root + "/" + name)
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			o.close()
		}
	}
}

// TestNext checks that the commands of Next share one sandbox and one stream of output, and that the sandbox ends with
// the last.
func TestNext(t *testing.T) {
	e := &chain{}
	s := New(Options{OutputRoot: t.TempDir(), Connect: e.connect})
	defer s.Close()
	var out strings.Builder
	var seen []int
	r := RunOptions{Command: runner.Command{Argv: []string{"0"}}, Stdout: &out, Next: func(_ context.Context, done *RunResult) (*runner.Command, error) {
		seen = append(seen, done.ExitCode)
		if len(seen) == 3 {
			return nil, nil
		}
		return &runner.Command{Argv: []string{string(rune('0' + len(seen)))}}, nil
	}}
	done, err := s.Run(t.Context(), CreateOptions{}, r, Callbacks{})
	if err != nil || out.String() != "0\n1\n2\n" || done.ExitCode != 2 || done.Stdout.Text != out.String() {
		t.Errorf("%q, %+v, %v", out.String(), done, err)
	}
	if len(seen) != 3 || e.lifetime != runner.Attached || strings.Join(e.removed, " ") != "sb" {
		t.Errorf("seen %v, lifetime %q, removed %v", seen, e.lifetime, e.removed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.removed = nil
	r.Next = func(ctx context.Context, _ *RunResult) (*runner.Command, error) {
		cancel()
		return nil, context.Cause(ctx)
	}
	if _, err := s.Run(ctx, CreateOptions{}, r, Callbacks{}); !errors.Is(err, context.Canceled) || len(e.removed) != 1 {
		t.Errorf("cancelled: %v, removed %v", err, e.removed)
	}
}

// chain is an Engine whose commands print their first argument and exit with its value.
type chain struct {
	Engine
	lifetime runner.Lifetime
	removed  []string
}

func (c *chain) connect(context.Context, client.Options) (Engine, error) { return c, nil }
func (c *chain) Reserve(context.Context, string) (string, func(), error) { return "", func() {}, nil }
func (c *chain) Done() <-chan struct{}                                   { return nil }
func (c *chain) Close() error                                            { return nil }

func (c *chain) Remove(_ context.Context, id string) error {
	c.removed = append(c.removed, id)
	return nil
}

func (c *chain) Run(_ context.Context, spec runner.Spec, cmd runner.Command) (*Sandbox, Process, error) {
	c.lifetime = spec.Lifetime
	sb := &Sandbox{Sandbox: &client.Sandbox{ID: "sb", Out: spec.Out}}
	sb.Exec = func(_ context.Context, cmd runner.Command) (Process, error) { return say(cmd), nil }
	return sb, say(cmd), nil
}

// say writes the command's first argument to its stdout.
func say(cmd runner.Command) Process {
	fd, _ := unix.Dup(int(cmd.Stdout.Fd()))
	f := os.NewFile(uintptr(fd), "stdout")
	f.WriteString(cmd.Argv[0] + "\n")
	f.Close()
	return ended(cmd.Argv[0][0] - '0')
}

// ended is a Process that has ended with this exit code.
type ended int

func (ended) Number() int                 { return 0 }
func (ended) Terminal() *os.File          { return nil }
func (ended) Signal(unix.Signal) error    { return nil }
func (ended) Resize(runner.Winsize) error { return nil }
func (ended) Stages() []runner.Stage      { return nil }
func (e ended) Wait(context.Context) (*runner.Result, error) {
	return &runner.Result{ExitCode: int(e), Reason: runner.Exited}, nil
}
