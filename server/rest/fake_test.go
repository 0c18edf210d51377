package rest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/client"
	"demesne/runner"
	runnerclient "demesne/runner/client"
	"demesne/runner/fileops"
	"demesne/runner/files"
	"demesne/runner/ipc"
	"demesne/server"
	"demesne/session"
	"demesne/session/operator"
)

// fake is a backend whose sandboxes are directories, and whose commands are programs of the test's machine. A sandbox
// belongs to the namespace of its creator.
type fake struct {
	mu    sync.Mutex
	all   map[string]*fakeSandbox
	calls []string
	fails error // of every call about a sandbox
	ask   func(runner.Question) (allow, answered bool)
	last  session.Request
	first func() // called by Remove; may be nil
}

type fakeSandbox struct {
	server.Sandbox // nil: Kernel is not called
	dir, namespace string
	info           runner.Info
}

func (f *fake) note(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, a...))
}

func (f *fake) find(ctx context.Context, name string) (*fakeSandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return nil, f.fails
	}
	for _, s := range f.all {
		if c := server.CallerOf(ctx); (s.info.ID == name || s.info.Name == name) && (c.Operator || c.Namespace == s.namespace) {
			return s, nil
		}
	}
	return nil, unknownSandbox{ipc.NoSuchSandbox(name)}
}

func (f *fake) Create(ctx context.Context, c session.Request, _ bool) (server.Sandbox, error) {
	if _, err := f.find(ctx, c.Create.Spec.Name); err == nil {
		return nil, session.ErrConflict
	}
	dir, err := os.MkdirTemp("", "rest-fake-")
	if err != nil {
		return nil, err
	}
	os.MkdirAll(dir+workspace, 0o755)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = c
	spec, egress := c.Create.Spec, c.Create.Egress
	s := &fakeSandbox{dir: dir, namespace: server.CallerOf(ctx).Namespace}
	s.info = runner.Info{
		ID: fmt.Sprintf("%012d", len(f.all)+1), Name: runner.InGroup(spec.Name, egress.Group), State: runner.Running, Created: time.Unix(int64(len(f.all)), 0),
		Spec:    runner.Spec{Lifetime: runner.Persistent, Limits: spec.Limits, Out: "/home/secret/out"},
		Receipt: &runner.Receipt{Version: 1, Level: runner.LevelFull, Layers: []runner.Layer{{Name: "seccomp", Status: runner.Held}}},
	}
	if egress.Group != "" {
		s.info.Spec.Egress = &runner.Egress{Group: egress.Group}
	}
	if egress.Mode != "" {
		s.info.Spec.Egress = &runner.Egress{Mode: egress.Mode, Allow: egress.Allow, Log: dir + "/log"}
		os.WriteFile(dir+"/log", []byte(`{"host":"a.test","port":443,"verdict":"denied","reason":"no rule"}`+"\nnonsense\n"), 0o600)
	}
	f.all[s.info.ID] = s
	return s, nil
}

func (f *fake) Open(ctx context.Context, name string) (server.Sandbox, error) {
	s, err := f.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (f *fake) List(ctx context.Context) (all []runner.Info, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		if c := server.CallerOf(ctx); c.Operator || c.Namespace == s.namespace {
			all = append(all, s.info)
		}
	}
	return append(all, runner.Info{ID: "one-shot"}), f.fails
}

func (f *fake) Inspect(ctx context.Context, name string) (*runner.Info, error) {
	s, err := f.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return &s.info, nil
}

func (f *fake) RemoveGroup(ctx context.Context, group string) (ids []string, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.all {
		if e := s.info.Spec.Egress; e != nil && e.Group == group && s.namespace == server.CallerOf(ctx).Namespace {
			delete(f.all, id)
			os.RemoveAll(s.dir)
			ids = append(ids, s.info.ID)
		}
	}
	return ids, f.fails
}

func (f *fake) Remove(ctx context.Context, name string) error {
	if f.first != nil {
		f.first()
	}
	s, err := f.find(ctx, name)
	if err == nil {
		os.RemoveAll(s.dir)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.all, s.info.ID)
	}
	return err
}

func (f *fake) state(ctx context.Context, name string, to runner.State) error {
	s, err := f.find(ctx, name)
	if err == nil {
		s.info.State = to
	}
	return err
}

func (f *fake) Pause(ctx context.Context, name string) error {
	return f.state(ctx, name, runner.Paused)
}
func (f *fake) Stop(ctx context.Context, name string) error {
	return f.state(ctx, name, runner.Stopped)
}

func (f *fake) Fork(ctx context.Context, from, name string) error {
	f.note("fork %s", from)
	_, err := f.Create(ctx, session.Request{Create: session.CreateOptions{Spec: runner.Spec{Name: name}}}, false)
	return err
}

func (f *fake) Snapshot(ctx context.Context, from, name string) error {
	err := f.Fork(ctx, from, name)
	if err == nil {
		err = f.state(ctx, name, runner.Snapshot)
	}
	return err
}

func (f *fake) Reach(_ context.Context, name string, n session.Egress) error {
	f.note("reach %s Mode:%s Allow:%v Deny:%v", name, n.Mode, n.Allow, n.Deny)
	return nil
}

func (f *fake) Widest() string { return "open" }

func (f *fake) Rules(_ context.Context, name string, allow, deny []string) error {
	f.note("rules %s %v %v", name, allow, deny)
	return nil
}

func (f *fake) Usage(context.Context, string) (runner.Usage, error) {
	return runner.Usage{CPU: 1, Memory: 1 << 20, Processes: 3}, nil
}

// Grants gives at most 2 GiB and a minute.
func (f *fake) Grants(_ context.Context, l runner.Limits, timeout time.Duration) operator.Granted {
	p, err := operator.New(session.Bounds{Max: runner.Limits{Memory: 2 << 30}, MaxTimeout: time.Minute}, operator.Caller{Namespace: "team"})
	if err != nil {
		panic(err)
	}
	return p.Grant(l, timeout)
}

func (f *fake) HasImage(context.Context, string) bool                        { return true }
func (f *fake) PullPrivate(context.Context, server.Private, io.Writer) error { return nil }
func (f *fake) Build(context.Context, server.Build, io.Writer) error         { return nil }
func (f *fake) Discard(context.Context, string) error                        { return nil }
func (f *fake) Blobs(context.Context, string) (map[string]int64, error)      { return nil, nil }
func (f *fake) MayDecide(context.Context) error                              { return nil }

func (f *fake) Diff(context.Context, string) (*runner.Diff, error) {
	return &runner.Diff{Changes: []runner.Change{{Path: []byte("/a\xff"), Kind: "A"}}}, nil
}

func (f *fake) Limit(_ context.Context, name string, l runner.Limits) error {
	f.note("limit %s %+v", name, l)
	return nil
}

func (f *fake) Copy(ctx context.Context, name, from, to string) error {
	s, err := f.find(ctx, name)
	if err != nil {
		return err
	}
	return exec.Command("cp", "-a", s.dir+from, s.dir+to).Run()
}

func (f *fake) Archive(ctx context.Context, name, from string, w io.Writer) error {
	s, err := f.find(ctx, name)
	if err == nil {
		err = (&exec.Cmd{Path: "/bin/tar", Args: []string{"tar", "-C", s.dir, "-c", "." + from}, Stdout: w}).Run()
	}
	return err
}

func (f *fake) Run(ctx context.Context, r session.Request, cb session.Callbacks) (*session.RunResult, error) {
	f.last = r
	return command(ctx, "run", os.TempDir(), r.Run, cb)
}

func (f *fake) Exec(ctx context.Context, name string, r session.RunOptions, cb session.Callbacks) (*session.RunResult, error) {
	s, err := f.find(ctx, name)
	if err != nil {
		return nil, err
	}
	s.info.State = runner.Running
	return command(ctx, s.info.ID, s.dir, r, cb)
}

// command executes a program.
func command(ctx context.Context, id, dir string, o session.RunOptions, cb session.Callbacks) (*session.RunResult, error) {
	c := o.Command
	ctx, cancel := context.WithTimeout(ctx, c.Timeout+time.Hour*24*boolean(c.Timeout == 0))
	defer cancel()
	x := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	var out, errs bytes.Buffer
	x.Dir, x.Env, x.Stdin, x.Stdout, x.Stderr = dir, append(os.Environ(), c.Env...), strings.NewReader(o.Stdin), &out, &errs
	if o.Stdout != nil {
		x.Stdout, x.Stderr = io.MultiWriter(&out, o.Stdout), io.MultiWriter(&errs, o.Stderr)
	}
	if err := x.Start(); errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return nil, os.ErrNotExist
	} else if err != nil {
		return nil, err
	}
	if cb.Made != nil {
		cb.Made(&session.Sandbox{Sandbox: &runnerclient.Sandbox{ID: id}})
		cb.Began(nil)
	}
	x.Wait()
	tail := func(b *bytes.Buffer) session.Tail {
		return session.Tail{Text: strings.ToValidUTF8(b.String(), "?"), Bytes: int64(b.Len())}
	}
	r := &runner.Result{Sandbox: id, ExitCode: x.ProcessState.ExitCode(), Reason: runner.Exited, Out: "/home/secret/out/RUN", Denied: []runner.Blocked{{Host: "b.test", Times: 1}}}
	return &session.RunResult{Result: r, Stdout: tail(&out), Stderr: tail(&errs)}, nil
}

func boolean(b bool) time.Duration {
	if b {
		return 1
	}
	return 0
}

// Files serves in this process. Absolute paths are below the sandbox's directory.
func (f *fake) Files(ctx context.Context, name string, r files.Request) (*files.Answer, error) {
	s, err := f.find(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, p := range []*string{path0(r.Edit), path1(r.Glob), path2(r.Grep)} {
		if p != nil {
			*p = filepath.Join(s.dir, *p)
		}
	}
	in, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	files.Serve(bytes.NewReader(in), &out)
	return files.ReadAnswer(strings.NewReader(strings.ReplaceAll(out.String(), s.dir, "")))
}

func path0(e *files.Edit) *string {
	if e == nil {
		return nil
	}
	return &e.Path
}

func path1(g *files.Glob) *string {
	if g == nil {
		return nil
	}
	return &g.Path
}

func path2(g *files.Grep) *string {
	if g == nil {
		return nil
	}
	return &g.Path
}

func (f *fake) ListImages(context.Context) ([]client.Image, error) {
	return []client.Image{{Names: []string{"docker.io/library/debian:latest"}}}, nil
}

func (f *fake) Pull(_ context.Context, name string, progress func(string)) (*client.Image, error) {
	if name == "nope" {
		return nil, session.ErrInvalid
	}
	progress("fetching")
	if name == "late" {
		return nil, errors.New("read /home/secret/store: broken")
	}
	return &client.Image{Names: []string{name}}, nil
}

// BuildImage fails for a tag with no, and repeats what was uploaded.
func (f *fake) BuildImage(_ context.Context, q client.BuildRequest, uploaded *os.File, log io.Writer) (*client.Built, error) {
	text, err := io.ReadAll(uploaded)
	fmt.Fprintf(log, "%s %v\n%s\nhalf", q.Target, q.Args, text)
	if strings.Contains(q.Tag, "no") {
		err = session.ErrInvalid
	}
	return &client.Built{Tag: q.Tag, Digest: "sha256:0"}, err
}

func (f *fake) RemoveImage(_ context.Context, name string) error {
	f.note("rmi %s", name)
	return nil
}

// Tree serves in this process. Absolute paths are below the sandbox's directory.
func (s *fakeSandbox) Tree(_ context.Context, _ *runner.User, _ string, t fileops.Request, from func(io.Writer) error, to func(*fileops.Answer, *bufio.Reader) error) (a *fileops.Answer, err error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	t.Path = filepath.Join(s.dir, t.Path)
	if t.To != "" {
		t.To = filepath.Join(s.dir, t.To)
	}
	in, asks := io.Pipe()
	answers, out := io.Pipe()
	go func() {
		fileops.Serve(in, shortened{out, s.dir}, nil)
		out.Close()
	}()
	defer asks.Close()
	a, _, err = fileops.Call(bufio.NewWriter(asks), bufio.NewReader(answers), nil, t, from, to)
	return a, err
}

// shortened removes the sandbox's directory from paths.
type shortened struct {
	io.Writer
	dir string
}

func (s shortened) Write(b []byte) (int, error) {
	_, err := io.WriteString(s.Writer, strings.ReplaceAll(string(b), s.dir, ""))
	return len(b), err
}

// Dial connects to a listener of the test that greets and echoes.
// Made implements [server.Sandbox].
func (s *fakeSandbox) Made() *runner.Info { return nil }

func (s *fakeSandbox) Dial(context.Context, uint16) (io.ReadWriteCloser, error) {
	a, b := net.Pipe()
	go func() {
		defer b.Close()
		io.WriteString(b, "hello ")
		buf := make([]byte, 5)
		n, _ := io.ReadFull(b, buf)
		b.Write(buf[:n])
	}()
	return a, nil
}

// Start starts a terminal that echoes until it gets "exit\n".
func (s *fakeSandbox) Start(_ context.Context, c runner.Command) (server.Process, error) {
	if slices.Contains(c.Argv, "nope") {
		return nil, os.ErrNotExist
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	p := &fakeProcess{ours: os.NewFile(uintptr(fds[0]), "pty"), theirs: os.NewFile(uintptr(fds[1]), "tty"), ended: make(chan struct{}), size: *c.TTY}
	go p.run()
	return p, nil
}

type fakeProcess struct {
	ours, theirs *os.File
	ended        chan struct{}
	once         sync.Once
	mu           sync.Mutex
	size         runner.Winsize
	signals      []syscall.Signal
}

func (p *fakeProcess) run() {
	r := bufio.NewReader(p.theirs)
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "exit\n" {
			break
		}
		p.mu.Lock()
		fmt.Fprintf(p.theirs, "%dx%d %s", p.size.Cols, p.size.Rows, line)
		p.mu.Unlock()
	}
	p.end()
}

func (p *fakeProcess) end() { p.once.Do(func() { p.theirs.Close(); close(p.ended) }) }

func (p *fakeProcess) Number() int        { return 7 }
func (p *fakeProcess) Terminal() *os.File { return p.ours }

func (p *fakeProcess) Shown(from io.Reader) io.ReadCloser { return io.NopCloser(from) }

func (p *fakeProcess) Signal(s syscall.Signal) error {
	p.mu.Lock()
	p.signals = append(p.signals, s)
	p.mu.Unlock()
	p.end()
	return nil
}

func (p *fakeProcess) Resize(w runner.Winsize) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = w
	return nil
}

func (p *fakeProcess) Wait(context.Context) (*runner.Result, error) {
	<-p.ended
	return &runner.Result{ExitCode: 3, Reason: runner.Exited}, nil
}

// rig is a server under test. Its callers send their name in the header Caller: operator, or a namespace.
type rig struct {
	*testing.T
	fake *fake
	api  *Server
	http *httptest.Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, fake: &fake{all: map[string]*fakeSandbox{}}}
	r.api = New(Options{Of: func(context.Context) (Service, error) { return r.fake, nil }, Questions: func(ask func(runner.Question) (allow, answered bool)) { r.fake.ask = ask }, Version: "1.2.3", Log: log.New(io.Discard, "", 0), Browse: func(_ context.Context, sandbox, tool string, args map[string]any) (*client.BrowserResult, error) {
		return &client.BrowserResult{Text: fmt.Sprint(sandbox, " ", tool, " ", args), Pictures: []client.Picture{{MIME: "image/png", Data: []byte("a")}}}, nil
	}})
	r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c := server.Caller{Name: q.Header.Get("Caller"), Namespace: q.Header.Get("Caller")}
		if c.Name == "" {
			c = server.Caller{Name: "operator", Operator: true}
		}
		r.api.ServeHTTP(w, q.WithContext(server.WithCaller(q.Context(), c)))
	}))
	t.Cleanup(func() {
		r.http.Close()
		r.api.Close()
		for _, s := range r.fake.all {
			os.RemoveAll(s.dir)
		}
	})
	return r
}

// send sends a request with headers, KEY: VALUE each.
func (r *rig) send(method, path, body string, headers ...string) (status int, text string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, "<"+err.Error()+">"...)
	}
	return resp.StatusCode, string(b)
}

// make makes a sandbox.
func (r *rig) make(name string, headers ...string) *fakeSandbox {
	r.Helper()
	status, text := r.send("POST", "/v1/sandboxes", `{"name":"`+name+`","network":{"mode":"open"}}`, headers...)
	if status != http.StatusCreated {
		r.Fatalf("create: %d %s", status, text)
	}
	s, err := r.fake.find(server.WithCaller(r.Context(), server.Caller{Operator: true}), name)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// unknownSandbox is the runner's error with the kind that the real backend gives it.
type unknownSandbox struct{ error }

func (unknownSandbox) Unwrap() error { return session.ErrNotFound }
