package e2b

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"demesne/runner"
	"demesne/server/e2b/envd"
	"demesne/session"
)

// TestIdempotent checks that requests with one key make one sandbox, also at once, after a failure and after a restart.
func TestIdempotent(t *testing.T) {
	r := newRig(t)
	ask := func(body, name string, want int) string {
		resp, text := r.send("POST", "/v2/sandboxes", body, "X-API-KEY: "+key, keyHeader+": "+name)
		if resp.StatusCode != want {
			t.Errorf("%s %s: %d %s, want %d", body, name, resp.StatusCode, text, want)
		}
		return text
	}
	r.fake.fails = session.ErrBusy
	ask(`{}`, "k", 503)
	r.fake.fails = nil
	first := ask(`{}`, "k", 201)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if text := ask(`{}`, "k", 201); text != first {
				t.Errorf("%s is not %s", text, first)
			}
			ask(`{"metadata":{"at":"once"}}`, "at-once", 201)
		})
	}
	all.Wait()
	ask(`{"timeout":7}`, "k", 409)
	ask(`{}`, strings.Repeat("k", longestKey+1), 400)
	if n := len(r.api.store.all()); n != 2 {
		t.Errorf("%d sandboxes", n)
	}
	r.http.Close()
	r.api.Close()
	r.start()
	if text := ask(`{}`, "k", 201); text != first {
		t.Errorf("after a restart: %s is not %s", text, first)
	}
}

// TestLost checks that the end of a process whose sandbox was lost is an error of the stream, and no exit code.
func TestLost(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	r.fake.begin = func(context.Context, runner.Command) error { return errors.New("the runner ended") }
	stream := of(rec, "49983", "Content-Type: application/connect+json", "Connect-Protocol-Version: 1")
	text := `{"process":{"cmd":"true"},"stdin":false}`
	_, text = r.send("POST", "/process.Process/Start", "\x00\x00\x00\x00"+string(rune(len(text)))+text, stream...)
	if !strings.Contains(text, `"code":"unavailable"`) || !strings.Contains(text, "the runner ended") || strings.Contains(text, "exitCode") {
		t.Errorf("%q", text)
	}
}

// TestTimeLimit checks that the end of a process which the time limit of the stream caused is an error of the stream.
func TestTimeLimit(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	p := &process{of: r.api.store.get(rec.ID), info: &envd.ProcessInfo{}, end: &envd.ProcessEvent{}}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for range 100 {
		if err := p.follow(ctx, p.listen(), func(*envd.ProcessEvent) error { return nil }); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Fatalf("the stream ended with %v", err)
		}
	}
}

// TestStartup checks when a sandbox of a template with a start command is ready, that one that fails is removed, and that a
// sandbox which is not ready can be removed.
func TestStartup(t *testing.T) {
	r := newRig(t)
	up := &startup{Cmd: "serve", Ready: "ready"}
	made := &template{ID: "t1", Name: "t", Tags: []templateTag{{Tag: defaultTag, Build: "b", Start: up}}}
	r.api.store.templates["t1"] = made
	if err := r.api.store.templateRecords.Put("t1", made); err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int32
	ends := make(chan struct{})
	t.Cleanup(func() { close(ends) })
	var fails atomic.Bool
	trying := make(chan struct{}, 1)
	r.fake.begin = func(ctx context.Context, c runner.Command) error {
		switch c.Argv[3] {
		case up.Cmd:
			if _, bounded := ctx.Deadline(); bounded {
				t.Error("the program ends with the wait for it")
			}
			if fails.Load() {
				return errExit
			}
			<-ends
		case up.Ready:
			if tries.Add(1) < 3 {
				select {
				case trying <- struct{}{}:
				default:
				}
				return errExit
			}
		}
		return nil
	}
	rec := r.make(`{"templateID":"t"}`)
	if rec.Start == nil || tries.Load() != 3 {
		t.Errorf("%+v, %d tries", rec.Start, tries.Load())
	}
	if resp, text := r.control("POST", "/sandboxes/"+rec.ID+"/pause", `{}`); resp.StatusCode != 204 {
		t.Fatalf("pause: %d %s", resp.StatusCode, text)
	}
	r.http.Close()
	r.api.Close()
	r.start() // the program of the paused sandbox ended with the server before
	if resp, text := r.control("POST", "/sandboxes/"+rec.ID+"/connect", `{}`); resp.StatusCode != 201 || tries.Load() != 4 {
		t.Errorf("resumed by the next server: %d %s, %d tries", resp.StatusCode, text, tries.Load())
	}
	tries.Store(-1 << 30)
	fails.Store(true)
	const failed = "start command: it failed before the ready command succeeded"
	resp, text := r.control("POST", "/v2/sandboxes", `{"templateID":"t"}`)
	if resp.StatusCode != 500 || !strings.Contains(text, failed) || len(r.api.store.all()) != 1 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if _, text := r.control("POST", "/sandboxes/"+rec.ID+"/fork", `{}`); !strings.Contains(text, failed) || len(r.api.store.all()) != 1 {
		t.Errorf("a fork: %s, %d sandboxes", text, len(r.api.store.all()))
	}
	fails.Store(false)
	if resp, text := r.control("POST", "/sandboxes/"+rec.ID+"/pause", `{"memory":false}`); resp.StatusCode != 204 {
		t.Fatalf("pause: %d %s", resp.StatusCode, text)
	}
	for len(trying) > 0 {
		<-trying
	}
	var all sync.WaitGroup
	all.Go(func() { r.control("POST", "/sandboxes/"+rec.ID+"/connect", `{}`) })
	<-trying
	if resp, text := r.control("DELETE", "/sandboxes/"+rec.ID, ""); resp.StatusCode != 204 {
		t.Errorf("remove: %d %s", resp.StatusCode, text)
	}
	all.Wait()
}

// TestIdempotentStartup checks that a repeated request waits until the sandbox is ready.
func TestIdempotentStartup(t *testing.T) {
	r := newRig(t)
	r.api.store.templates["t1"] = &template{ID: "t1", Name: "t", Tags: []templateTag{{Tag: defaultTag, Build: "b", Start: &startup{Cmd: "serve", Ready: "ready"}}}}
	trying, ready := make(chan struct{}, 1), make(chan struct{})
	r.fake.begin = func(_ context.Context, c runner.Command) error {
		if c.Argv[3] == "ready" {
			trying <- struct{}{}
			<-ready
		}
		return nil
	}
	ask := func(ctx context.Context) (*entry, func(), error) { return r.api.store.claim(ctx, &creation{Key: "k"}) }
	var all sync.WaitGroup
	all.Go(func() { r.send("POST", "/v2/sandboxes", `{"templateID":"t"}`, "X-API-KEY: "+key, keyHeader+": k") })
	<-trying
	ended, end := context.WithCancel(t.Context())
	end()
	if e, _, err := ask(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("before it was ready: %v, %v", e, err)
	}
	close(ready)
	all.Wait()
	if _, _, err := ask(t.Context()); !errors.Is(err, errReused) {
		t.Errorf("another request with the key: %v", err)
	}
}

// TestStartupOf checks which steps of a recipe the start command obeys.
func TestStartupOf(t *testing.T) {
	for _, c := range []struct {
		q    recipe
		want string
	}{
		{recipe{}, "<nil>"},
		{recipe{ReadyCmd: "true"}, "<nil>"},
		{recipe{StartCmd: "a"}, "&{a   }"},
		{recipe{StartCmd: "a", ReadyCmd: "b", Steps: []step{{Type: "USER", Args: []string{"u"}}, {Type: "WORKDIR", Args: []string{"/d"}}, {Type: "USER", Args: []string{"v"}}}}, "&{a b v /d}"},
	} {
		if got := fmt.Sprint(c.q.startup()); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
}
