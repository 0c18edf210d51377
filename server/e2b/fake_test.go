package e2b

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/images"
	"demesne/kernels"
	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/server"
	"demesne/session"
	"demesne/session/operator"
)

// fake is a backend whose sandboxes are directories, and whose commands are programs of the test's.
type fake struct {
	mu    sync.Mutex
	all   map[string]*fakeSandbox
	fails error // of Create
	reach session.Egress
	dial  func() (io.ReadWriteCloser, error)
	calls []string

	images map[string]map[string]int64 // blobs of the images that are here
	busy   map[string]bool             // images that are in use
	steps  map[string]bool             // images for which a build left something
	builds func(server.Build) error    // may be nil

	started int                                         // kernels
	kernel  func() error                                // starts a kernel; may be nil
	begin   func(context.Context, runner.Command) error // starts a process, and returns with its end; nil: there are no processes
	execute func(context.Context) error                 // ends an execution; may be nil
}

type fakeSandbox struct {
	fake  *fake
	dir   string
	state runner.State
	dial  func() (io.ReadWriteCloser, error)
}

func (f *fake) note(format string, a ...any) { f.calls = append(f.calls, fmt.Sprintf(format, a...)) }

func (f *fake) find(name string) (*fakeSandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.all[name]; s != nil {
		return s, nil
	}
	return nil, session.ErrNotFound
}

func (f *fake) add(name string) (*fakeSandbox, error) {
	dir, err := os.MkdirTemp("", "e2b-fake-")
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("add %s", name[:4])
	s := &fakeSandbox{f, dir, runner.Running, f.dial}
	f.all[name] = s
	return s, nil
}

func (f *fake) Create(_ context.Context, r session.Request, _ bool) (server.Sandbox, error) {
	if f.fails != nil {
		return nil, f.fails
	}
	f.reach = r.Create.Egress
	return f.add(r.Create.Spec.Name)
}

func (f *fake) Open(_ context.Context, name string) (server.Sandbox, error) {
	s, err := f.find(name)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (f *fake) List(context.Context) (all []runner.Info, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.all {
		all = append(all, runner.Info{Name: name, State: s.state})
	}
	return all, nil
}

func (f *fake) Remove(_ context.Context, name string) error {
	s, err := f.find(name)
	if err != nil {
		return err
	}
	os.RemoveAll(s.dir)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, name)
	return nil
}

func (f *fake) change(name string, to runner.State) error {
	s, err := f.find(name)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.state = to
	}
	return err
}

func (f *fake) Pause(_ context.Context, name string) error { return f.change(name, runner.Paused) }
func (f *fake) Stop(_ context.Context, name string) error  { return f.change(name, runner.Stopped) }

func (f *fake) Fork(_ context.Context, from, name string) error {
	if _, err := f.find(from); err != nil {
		return err
	}
	_, err := f.add(name)
	return err
}

func (f *fake) Snapshot(ctx context.Context, from, name string) error { return f.Fork(ctx, from, name) }

func (f *fake) Reach(_ context.Context, _ string, n session.Egress) error { f.reach = n; return nil }

func (f *fake) Widest() string { return "open" }

func (f *fake) Usage(context.Context, string) (runner.Usage, error) {
	return runner.Usage{CPU: 1, Memory: 1 << 20}, nil
}

// Grants gives at most 2 GiB of memory, one processor, and 100 MiB of disk.
func (f *fake) Grants(_ context.Context, l runner.Limits, timeout time.Duration) operator.Granted {
	l.Memory, l.CPUs, l.Disk = min(cmp.Or(l.Memory, 2<<30), 2<<30), 1, 100<<20
	return operator.Granted{Limits: l, Timeout: timeout}
}

func (f *fake) HasImage(_ context.Context, name string) bool { return name == "debian" }

// Build makes a layer for each RUN: its text is NAME SIZE. The layers of the base are below them.
func (f *fake) Build(_ context.Context, b server.Build, log io.Writer) error {
	text, err := os.ReadFile(b.Containerfile)
	fmt.Fprintf(log, "%s", text)
	if f.builds != nil {
		err = f.builds(b)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	blobs := map[string]int64{}
	var added int64
	for line := range strings.Lines(string(text)) {
		if base, ok := strings.CutPrefix(line, "FROM "); ok {
			maps.Copy(blobs, f.images[strings.TrimSpace(base)])
		}
		var layer string
		var size int64
		if n, _ := fmt.Sscanf(line, `RUN ["/bin/sh","-c","%s %d"]`, &layer, &size); n == 2 {
			blobs[layer] = size
			added += size
		}
	}
	f.steps[b.Name] = true
	if b.MaxLayers > 0 && added > b.MaxLayers {
		err = errors.New("the new layers are too large")
	}
	if err == nil {
		f.images[b.Name] = blobs
	}
	return err
}

// PullPrivate has an image whose only login is me and right.
func (f *fake) PullPrivate(_ context.Context, p server.Private, log io.Writer) error {
	if p.Login != (images.Login{User: "me", Password: "right"}) {
		return errors.New("the registry refused the login")
	}
	fmt.Fprintf(log, "pulled %s", p.Image)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[p.As] = map[string]int64{"private": 50 * kilo}
	return nil
}

func (f *fake) Blobs(_ context.Context, name string) (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.images[name] == nil {
		return nil, session.ErrNotFound
	}
	return f.images[name], nil
}

func (f *fake) Discard(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[name] {
		return session.ErrConflict
	}
	delete(f.images, name)
	delete(f.steps, name)
	return nil
}

func (s *fakeSandbox) Start(ctx context.Context, c runner.Command) (server.Process, error) {
	if s.fake.begin == nil {
		return nil, syscall.ENOSYS
	}
	p := &fakeProcess{end: make(chan struct{})}
	go func() {
		p.err = s.fake.begin(ctx, c)
		close(p.end)
	}()
	return p, nil
}

// fakeProcess ends with status 1 for errExit, and is lost for other errors.
type fakeProcess struct {
	end chan struct{}
	err error
}

var errExit = errors.New("exit")

func (*fakeProcess) Number() int                        { return 7 }
func (*fakeProcess) Terminal() *os.File                 { return nil }
func (*fakeProcess) Shown(from io.Reader) io.ReadCloser { return io.NopCloser(from) }
func (*fakeProcess) Signal(syscall.Signal) error        { return nil }
func (*fakeProcess) Resize(runner.Winsize) error        { return nil }

func (p *fakeProcess) Wait(context.Context) (*runner.Result, error) {
	<-p.end
	switch p.err {
	case nil:
		return &runner.Result{Reason: runner.Exited}, nil
	case errExit:
		return &runner.Result{Reason: runner.Exited, ExitCode: 1}, nil
	}
	return nil, p.err
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

// Made implements [server.Sandbox].
func (s *fakeSandbox) Made() *runner.Info { return nil }

func (s *fakeSandbox) Dial(context.Context, uint16) (io.ReadWriteCloser, error) {
	if s.dial != nil {
		return s.dial()
	}
	return nil, syscall.ECONNREFUSED
}

func (s *fakeSandbox) Kernel(context.Context, server.KernelOptions) (server.Kernel, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	s.fake.started++
	if s.fake.kernel != nil {
		return nil, s.fake.kernel()
	}
	return fakeKernel{s.fake}, nil
}

// fakeKernel answers with its code, in characters that a chunk may split.
type fakeKernel struct{ fake *fake }

func (k fakeKernel) Execute(ctx context.Context, code string, emit func(kernels.Output)) (*kernels.Result, error) {
	if k.fake.execute != nil {
		return nil, k.fake.execute(ctx)
	}
	emit(kernels.Output{Stdout: code + " € 😀\n"})
	return &kernels.Result{Count: 1}, nil
}

func (fakeKernel) Restart(context.Context) error { return nil }
func (fakeKernel) Close()                        {}

func newFake() *fake {
	return &fake{
		all: map[string]*fakeSandbox{}, busy: map[string]bool{}, steps: map[string]bool{},
		images: map[string]map[string]int64{"debian": {"base": 500 * kilo}},
	}
}

// rig is a server under test.
type rig struct {
	*testing.T
	fake  *fake
	vault *fakeVault
	api   *Server
	http  *httptest.Server
	state string
	quota Quota
}

const key = "e2b_0123456789abcdef"

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, fake: newFake(), vault: &fakeVault{all: map[string]string{}}, state: t.TempDir()}
	r.start()
	t.Cleanup(func() {
		r.http.Close()
		r.api.Close()
		for _, s := range r.fake.all {
			os.RemoveAll(s.dir)
		}
	})
	return r
}

// start starts a server over the state of the one before.
func (r *rig) start() {
	r.Helper()
	var err error
	r.api, err = New(r.Context(), Options{Backend: r.fake, State: r.state, Vault: r.vault, Key: key, Quota: r.quota, Log: log.New(io.Discard, "", 0)})
	if err != nil {
		r.Fatal(err)
	}
	r.http = httptest.NewServer(server.Guard{Domain: "localhost"}.Handler(r.api))
}

// send sends a request with headers, KEY: VALUE each. The answer's body is text.
func (r *rig) send(method, path, body string, headers ...string) (*http.Response, string) {
	r.Helper()
	req, err := http.NewRequest(method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if req.Header.Set(k, v); k == "Host" {
			req.Host = v
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		text = append(text, "<"+err.Error()+">"...)
	}
	return resp, string(text)
}

// control sends a control call.
func (r *rig) control(method, path, body string) (*http.Response, string) {
	r.Helper()
	return r.send(method, path, body, "X-API-KEY: "+key)
}

// make makes a sandbox.
func (r *rig) make(body string) record {
	r.Helper()
	resp, text := r.control("POST", "/v2/sandboxes", body)
	if resp.StatusCode != http.StatusCreated {
		r.Fatalf("create: %d %s", resp.StatusCode, text)
	}
	_, rest, _ := strings.Cut(text, `"sandboxID":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return r.api.store.get(id).snap()
}

// of returns the headers of a request for a port of a sandbox.
func of(rec record, port string, more ...string) []string {
	return append([]string{"E2b-Sandbox-Id: " + rec.ID, "E2b-Sandbox-Port: " + port, "X-Access-Token: " + rec.Token}, more...)
}
