package inprocess_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/client"
	"demesne/server/inprocess"
)

// ways are the ways to get a Client.
var ways = []struct {
	name string
	open func(testing.TB) (*client.Client, error)
}{
	{"HTTP", func(testing.TB) (*client.Client, error) {
		return client.New(client.Options{URL: os.Getenv("DEMESNE_URL"), Token: os.Getenv("DEMESNE_TOKEN")})
	}},
	{"in-process", func(t testing.TB) (*client.Client, error) {
		c, err := inprocess.New(inprocess.Options{Log: log.New(writer{t}, "", 0)})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		return c.Client, nil
	}},
}

// writer writes to the log of a test.
type writer struct{ testing.TB }

func (w writer) Write(b []byte) (int, error) {
	w.Logf("%s", b)
	return len(b), nil
}

// TestClient calls every method, by each way, as a user of the package would.
func TestClient(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			c, err := way.open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			for _, part := range []struct {
				name string
				test func(*testing.T, *client.Client)
			}{
				{"run", runs}, {"errors", problems}, {"life", life}, {"files", contents}, {"terminal", types}, {"network", reaches}, {"secrets", uses},
				{"ports", publishes}, {"events", happens}, {"jobs", background}, {"images", stores}, {"outputs", leaves}, {"audit", records}, {"host", asks},
			} {
				t.Run(part.name, func(t *testing.T) { t.Parallel(); part.test(t, c) })
			}
		})
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// made makes a sandbox for a test.
func made(t *testing.T, c *client.Client, q client.CreateRequest) string {
	t.Helper()
	sb := must[*client.Sandbox](t)(c.Sandboxes().Create(soon(t), q))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Sandboxes().Remove(ctx, sb.ID); err != nil {
			t.Error(err)
		}
	})
	return sb.ID
}

func shell(text string) client.Command { return client.Command{Command: text} }

func runs(t *testing.T, c *client.Client) {
	ctx := soon(t)
	r := must[*client.Result](t)(c.Run(ctx, client.RunRequest{Command: client.Command{
		Command: `cat; echo "$WORD" >&2; pwd; exit 3`, Stdin: "in\n", Env: map[string]string{"WORD": "err"}, Dir: "/tmp",
	}}))
	if r.ExitCode != 3 || r.Reason != "exited" || r.Stdout.Text != "in\n/tmp\n" || r.Stderr.Text != "err\n" || r.Sandbox == "" {
		t.Errorf("%+v", r)
	}
	var out, errs bytes.Buffer
	started := ""
	r = must[*client.Result](t)(c.RunStream(ctx, client.RunRequest{Command: shell(`printf 'a\377'; echo no >&2`)},
		client.Streams{Stdout: &out, Stderr: &errs, Started: func(id string) { started = id }}))
	if out.String() != "a\xff" || errs.String() != "no\n" || started != r.Sandbox || r.ExitCode != 0 {
		t.Errorf("%q %q %q %+v", &out, &errs, started, r)
	}
	r = must[*client.Result](t)(c.Run(ctx, client.RunRequest{Command: client.Command{Command: "sleep 60", TimeoutMS: 300}}))
	if r.Reason != "timed-out" {
		t.Errorf("%+v", r)
	}
	if r, err := c.RunStream(ctx, client.RunRequest{Command: shell("yes")}, client.Streams{Stdout: full{}}); !errors.Is(err, errFull) {
		t.Errorf("a writer that fails: %+v %v", r, err)
	}
	brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if r, err := c.Run(brief, client.RunRequest{Command: shell("sleep 60")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends: %+v %v", r, err)
	}
	if s := must[*client.Server](t)(c.Server(ctx)); !s.Operator || s.Version == "" {
		t.Errorf("%+v", s)
	}
}

var errFull = errors.New("full")

// full is a writer that fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func problems(t *testing.T, c *client.Client) {
	ctx := soon(t)
	sb := made(t, c, client.CreateRequest{})
	name := must[*client.Sandbox](t)(c.Sandboxes().Get(ctx, sb)).Name
	for _, row := range []struct {
		name string
		want []error
		call func() error
	}{
		{"no command", []error{client.ErrInvalid}, func() error { _, err := c.Run(ctx, client.RunRequest{}); return err }},
		{"an image that is a directory", []error{client.ErrInvalid}, func() error {
			_, err := c.Run(ctx, client.RunRequest{Command: shell("true"), Image: "/etc"})
			return err
		}},
		{"no such program", []error{client.ErrInvalid}, func() error {
			_, err := c.Run(ctx, client.RunRequest{Command: client.Command{Argv: []string{"/no/such"}}})
			return err
		}},
		{"the same, as a stream", []error{client.ErrInvalid}, func() error {
			_, err := c.Sandboxes().ExecStream(ctx, sb, client.Command{Argv: []string{"/no/such"}}, client.Streams{})
			return err
		}},
		{"no such sandbox", []error{client.ErrNotFound}, func() error { _, err := c.Sandboxes().Get(ctx, "none"); return err }},
		{"an empty name", []error{client.ErrNotFound}, func() error { _, err := c.Sandboxes().Get(ctx, ""); return err }},
		{"a path for a name", []error{client.ErrNotFound}, func() error { return c.Sandboxes().Remove(ctx, "../sandboxes/"+sb) }},
		{"a step for a name", []error{client.ErrNotFound}, func() error { return c.Sandboxes().Remove(ctx, "..") }},
		{"a name twice", []error{client.ErrConflict, fs.ErrExist}, func() error {
			_, err := c.Sandboxes().Create(ctx, client.CreateRequest{Name: name})
			return err
		}},
		{"no such file", []error{client.ErrNotFound, fs.ErrNotExist}, func() error { _, err := c.Files(sb).Read(ctx, "none"); return err }},
		{"no such file to describe", []error{client.ErrNotFound, fs.ErrNotExist}, func() error { _, err := c.Files(sb).Stat(ctx, "none"); return err }},
		{"a terminal in no sandbox", []error{client.ErrNotFound}, func() error {
			_, err := c.Sandboxes().Terminal(ctx, "none", client.TerminalOptions{})
			return err
		}},
		{"no network to allow", []error{client.ErrInvalid}, func() error { _, err := c.Egress().Allow(ctx, sb, "example.com"); return err }},
		{"no log", []error{client.ErrConflict}, func() error {
			for _, err := range c.Egress().Log(ctx, sb, false) {
				return err
			}
			return nil
		}},
		{"no such question", []error{client.ErrNotFound}, func() error { _, err := c.Egress().Answer(ctx, "none", true); return err }},
		{"no such job", []error{client.ErrNotFound}, func() error { _, err := c.Jobs().Wait(ctx, "none"); return err }},
		{"an unknown field of events", []error{client.ErrInvalid}, func() error {
			for _, err := range c.Events(ctx, client.EventFilter{Type: strings.Repeat("x", 300)}) {
				return err
			}
			return nil
		}},
	} {
		err := row.call()
		for _, want := range row.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", row.name, err, want)
			}
		}
		var e *client.Error
		if !errors.As(err, &e) || e.Code < 400 || e.Message == "" || errors.Is(err, client.ErrBusy) {
			t.Errorf("%s: %#v", row.name, err)
		}
	}
}

func life(t *testing.T, c *client.Client) {
	ctx, all := soon(t), c.Sandboxes()
	sb := made(t, c, client.CreateRequest{TTLSeconds: 600, Settings: client.Settings{Env: map[string]string{"WORD": "hello"}, Limits: &client.Limits{Memory: 256 << 20}}})
	list := must[*client.SandboxPage](t)(all.List(ctx, client.SandboxFilter{State: "running"})).Items
	if !slices.ContainsFunc(list, func(s client.Sandbox) bool { return s.ID == sb && s.State == "running" && s.Limits.Memory == 256<<20 }) {
		t.Errorf("%+v", list)
	}
	r := must[*client.Result](t)(all.Exec(ctx, sb, shell("echo $WORD | tee kept")))
	if r.Stdout.Text != "hello\n" || r.Sandbox != sb {
		t.Errorf("%+v", r)
	}
	if got := must[*client.Sandbox](t)(all.Pause(ctx, sb)); got.State != "paused" {
		t.Errorf("pause: %+v", got)
	}
	if got := must[*client.Sandbox](t)(all.Resume(ctx, sb)); got.State != "running" {
		t.Errorf("resume: %+v", got)
	}
	if got := must[*client.Usage](t)(all.Usage(ctx, sb)); got.Memory < 1 {
		t.Errorf("usage: %+v", got)
	}
	if got := must[*client.Receipt](t)(all.Receipt(ctx, sb)); got.Sandbox != sb || len(got.Layers) == 0 {
		t.Errorf("receipt: %+v", got)
	}
	changes := must[*client.Changes](t)(all.Changes(ctx, sb))
	if !slices.ContainsFunc(changes.Items, func(x client.Change) bool { return strings.HasSuffix(x.Path, "/kept") && x.Kind == "A" }) {
		t.Errorf("changes: %+v", changes)
	}
	if got, err := all.SetLimits(ctx, sb, client.Limits{Memory: 128 << 20}); err != nil || got.Limits.Memory != 128<<20 {
		t.Errorf("limits: %+v %v", got, err)
	}
	for verb, made := range map[string]func(context.Context, string, string) (*client.Sandbox, error){"fork": all.Fork, "snapshot": all.Snapshot} {
		other := must[*client.Sandbox](t)(made(ctx, sb, ""))
		if verb == "fork" {
			if r := must[*client.Result](t)(all.Exec(ctx, other.ID, shell("cat kept"))); r.Stdout.Text != "hello\n" {
				t.Errorf("a fork's file: %+v", r)
			}
		} else if other.State != "snapshot" {
			t.Errorf("snapshot: %+v", other)
		}
		if err := all.Remove(ctx, other.ID); err != nil {
			t.Error(err)
		}
	}
	if got := must[*client.Sandbox](t)(all.Stop(ctx, sb)); got.State != "stopped" {
		t.Errorf("stop: %+v", got)
	}
	if got := must[*client.Sandbox](t)(all.Start(ctx, sb)); got.State != "running" {
		t.Errorf("start: %+v", got)
	}
	gone := must[*client.Sandbox](t)(all.Create(ctx, client.CreateRequest{}))
	if err := all.Remove(ctx, gone.ID); err != nil {
		t.Error(err)
	}
	if err := all.Remove(ctx, gone.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("remove again: %v", err)
	}
	if _, err := all.Exec(ctx, gone.ID, shell("true")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("exec in a removed sandbox: %v", err)
	}
	if _, err := c.Files(gone.ID).Read(ctx, "x"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a file of a removed sandbox: %v", err)
	}
	var out bytes.Buffer
	r = must[*client.Result](t)(all.ExecStream(ctx, sb, client.Command{Argv: []string{"cat", "kept"}}, client.Streams{Stdout: &out}))
	if out.String() != "hello\n" || r.ExitCode != 0 {
		t.Errorf("%q %+v", &out, r)
	}
}

func contents(t *testing.T, c *client.Client) {
	ctx := soon(t)
	at := c.Files(made(t, c, client.CreateRequest{}))
	f := must[*client.File](t)(at.Write(ctx, "deep/a b.txt", []byte("one\ntwo\x00\xff\n")))
	if f.Path != "/workspace/deep/a b.txt" || f.Size != 10 {
		t.Errorf("write: %+v", f)
	}
	if b := must[[]byte](t)(at.Read(ctx, "deep/a b.txt")); string(b) != "one\ntwo\x00\xff\n" {
		t.Errorf("read: %q", b)
	}
	if f := must[*client.File](t)(at.Write(ctx, "empty", nil)); f.Size != 0 {
		t.Errorf("an empty file: %+v", f)
	}
	const big = 20 << 20
	if f := must[*client.File](t)(at.Upload(ctx, "big", io.LimitReader(zeros{}, big))); f.Size != big {
		t.Errorf("upload: %+v", f)
	}
	r := must[io.ReadCloser](t)(at.Download(ctx, "big"))
	if n, err := io.Copy(io.Discard, r); n != big || err != nil {
		t.Errorf("download: %d %v", n, err)
	}
	r.Close()
	part := must[io.ReadCloser](t)(at.Download(ctx, "big"))
	io.ReadFull(part, make([]byte, 10))
	part.Close() // the rest is not read
	if _, err := at.Upload(ctx, "failed", io.MultiReader(strings.NewReader("x"), failing{})); !errors.Is(err, errFull) {
		t.Errorf("an upload whose content fails: %v", err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := at.Stat(ctx, "failed"); errors.Is(err, fs.ErrNotExist) {
			break
		} else if time.Now().After(end) {
			t.Errorf("a failed upload left a file: %v", err)
			break
		}
	}
	must[*client.File](t)(at.Write(ctx, "text", []byte("red\ngreen\n")))
	if e := must[*client.Edited](t)(at.Edit(ctx, "text", "green", "blue")); e.Replaced != 1 || e.Line != 2 {
		t.Errorf("edit: %+v", e)
	}
	if m := must[*client.Matches](t)(at.Grep(ctx, client.GrepRequest{Pattern: "BLUE", IgnoreCase: true})); m.Matches != 1 || m.Lines[0].Text != "blue" || m.Lines[0].Line != 2 {
		t.Errorf("grep: %+v", m)
	}
	if p := must[*client.Paths](t)(at.Glob(ctx, client.GlobRequest{Pattern: "**/*.txt"})); len(p.Paths) != 1 {
		t.Errorf("glob: %+v", p)
	}
	must[*client.File](t)(at.Mkdir(ctx, "dir/sub"))
	must[*client.File](t)(at.Copy(ctx, "text", "dir/copy"))
	must[*client.File](t)(at.Move(ctx, "dir/copy", "dir/moved"))
	list := must[[]client.File](t)(at.List(ctx, "dir", 0))
	if len(list) != 2 || list[0].Name != "moved" && list[1].Name != "moved" {
		t.Errorf("list: %+v", list)
	}
	if err := at.Remove(ctx, "dir"); err != nil {
		t.Error(err)
	}
	if f, err := at.Stat(ctx, "dir"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a removed directory: %+v %v", f, err)
	}
	if f := must[*client.File](t)(at.Stat(ctx, "/workspace")); !f.IsDir {
		t.Errorf("stat: %+v", f)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFull }

func types(t *testing.T, c *client.Client) {
	ctx := soon(t)
	sb := made(t, c, client.CreateRequest{})
	term := must[*client.Terminal](t)(c.Sandboxes().Terminal(ctx, sb, client.TerminalOptions{Command: "stty size; read x; stty size; echo got-$x; exit 7", Rows: 30, Cols: 90}))
	shown := bufio.NewReader(term)
	first, err := shown.ReadString('\n') // the command has looked at its size
	if err != nil || !strings.Contains(first, "30 90") {
		t.Errorf("%q %v", first, err)
	}
	if err := term.Resize(40, 100); err != nil {
		t.Error(err)
	}
	if n, err := io.WriteString(term, "word\n"); n != 5 || err != nil {
		t.Error(n, err)
	}
	if rest, err := io.ReadAll(shown); err != nil || !strings.Contains(string(rest), "40 100") || !strings.Contains(string(rest), "got-word") {
		t.Errorf("%q %v", rest, err)
	}
	if code, reason := term.Exit(); code != 7 || reason != "exited" {
		t.Errorf("%d %q", code, reason)
	}
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	brief, cancel := context.WithCancel(ctx)
	term = must[*client.Terminal](t)(c.Sandboxes().Terminal(brief, sb, client.TerminalOptions{}))
	time.AfterFunc(300*time.Millisecond, cancel)
	if b, err := io.ReadAll(term); err == nil {
		t.Errorf("the end of the context: %q", b)
	}
	term.Close()
}

func happens(t *testing.T, c *client.Client) {
	ctx := soon(t)
	sb := made(t, c, client.CreateRequest{})
	must[*client.Result](t)(c.Sandboxes().Exec(ctx, sb, shell("exit 4")))
	var last uint64
	for e, err := range c.Events(ctx, client.EventFilter{Sandbox: sb, Last: 100}) { // the past
		if err != nil {
			t.Fatal(err)
		}
		if e.Sandbox != sb || e.ID <= last || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
		if last = e.ID; strings.HasPrefix(e.Type, "execution.") && e.Type != "execution.started" {
			break
		}
	}
	go c.Sandboxes().Exec(ctx, sb, shell("true"))
	for e, err := range c.Events(ctx, client.EventFilter{Sandbox: sb, Type: "execution.started", After: last}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.ID <= last || e.Type != "execution.started" {
			t.Errorf("%+v", e)
		}
		break
	}
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	for e, err := range c.Events(brief, client.EventFilter{Sandbox: sb, Type: "vault.accessed"}) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v %v", e, err)
		}
	}
}

func background(t *testing.T, c *client.Client) {
	ctx := soon(t)
	j := must[*client.Job](t)(c.Jobs().Start(ctx, client.JobRequest{Command: shell("echo out; echo err >&2; sleep 0.3; exit 5"), JobTraits: client.JobTraits{Labels: map[string]string{"team": "search"}}}))
	r := must[io.ReadCloser](t)(c.Jobs().Output(ctx, j.ID, "stdout"))
	if b, err := io.ReadAll(r); string(b) != "out\n" || err != nil {
		t.Errorf("output: %q %v", b, err)
	}
	r.Close()
	j = must[*client.Job](t)(c.Jobs().Wait(ctx, j.ID))
	if j.Labels["team"] != "search" || j.CPU == 0 || j.MaxRSS == 0 || !j.Over() || j.Exit == nil || *j.Exit != 5 || j.Stderr == nil || j.Stderr.Text != "err\n" {
		t.Errorf("%+v", j)
	}
	if got := must[*client.Job](t)(c.Jobs().Get(ctx, j.ID)); got.Status != j.Status {
		t.Errorf("%+v", got)
	}
	long := must[*client.Job](t)(c.Jobs().Start(ctx, client.JobRequest{Command: shell("sleep 60")}))
	must[*client.Job](t)(c.Jobs().Cancel(ctx, long.ID))
	if j := must[*client.Job](t)(c.Jobs().Wait(ctx, long.ID)); j.Status != "cancelled" {
		t.Errorf("%+v", j)
	}
	list := must[[]client.Job](t)(c.Jobs().List(ctx))
	if !slices.ContainsFunc(list, func(x client.Job) bool { return x.ID == j.ID }) {
		t.Errorf("%+v", list)
	}
	if agents := must[[]client.Job](t)(c.Agents().List(ctx)); len(agents) > 0 {
		t.Errorf("%+v", agents)
	}
	if _, err := c.Agents().Start(ctx, client.AgentRequest{Prompt: "x", Model: "no-such-model"}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown model: %v", err)
	}
	if _, err := c.Agents().Trace(ctx, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("no such agent: %v", err)
	}
}

func stores(t *testing.T, c *client.Client) {
	ctx := soon(t)
	must[[]client.Image](t)(c.Images().List(ctx))
	if _, err := c.Images().Pull(ctx, "127.0.0.1:1/none:latest", nil); err == nil {
		t.Error("pulled from nowhere")
	}
	if err := c.Images().Remove(ctx, "local/none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("remove: %v", err)
	}
}
