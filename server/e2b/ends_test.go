package e2b

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/server"
	"demesne/server/e2b/envd"
	"demesne/session"
)

// TestStalled checks that a reader that takes nothing is left behind by both streams of a process at once, and that its stream ends.
func TestStalled(t *testing.T) { synctest.Test(t, testStalled) }

func testStalled(t *testing.T) {
	e := &entry{store: &store{}, rec: record{ID: "s"}}
	e.store.entries = map[string]*entry{"s": e}
	p := &process{of: e, info: &envd.ProcessInfo{}}
	r := p.listen()
	var streams sync.WaitGroup
	for range 2 {
		streams.Go(func() {
			for range cap(r.events) {
				p.publish(&envd.ProcessEvent{})
			}
		})
	}
	streams.Wait()
	if len(p.readers) != 0 {
		t.Errorf("%d readers", len(p.readers))
	}
	if err := p.follow(t.Context(), r, func(*envd.ProcessEvent) error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestAfterRemove checks that calls that found a sandbox before its removal leave no record and no timer of it.
func TestAfterRemove(t *testing.T) {
	r := newRig(t)
	e := r.api.store.get(r.make(`{"autoPause":true}`).ID)
	if there, err := e.remove(t.Context()); !there || err != nil {
		t.Fatal(there, err)
	}
	if did, err := e.pause(t.Context(), true); did || err != nil {
		t.Errorf("paused: %v %v", did, err)
	}
	if err := e.change(func(r *record) { r.End = time.Now() }); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("changed: %v", err)
	}
	e.arm()
	e.expire()
	if ids, err := r.api.store.records.Load(); len(ids) != 0 || err != nil || e.stop != nil {
		t.Errorf("%v %v, a timer: %v", ids, err, e.stop != nil)
	}
}

// TestBuildAgain checks that a repeated request for a build changes nothing of the build that has ended.
func TestBuildAgain(t *testing.T) {
	r := newRig(t)
	_, path := r.begin("a", layers("debian", "l 1"))
	if got := r.ends(path); got != "ready" {
		t.Fatal(got)
	}
	resp, text := r.control("POST", "/v2"+path, layers("debian", "l 1"))
	if got := r.ends(path); resp.StatusCode != http.StatusConflict || got != "ready" {
		t.Errorf("%d %s, then %s", resp.StatusCode, text, got)
	}
}

// TestSecretChanges checks that the value of a secret can be read while the secret changes.
func TestSecretChanges(t *testing.T) {
	r := newRig(t)
	r.control("POST", "/secrets", `{"name":"a","value":"one"}`)
	changed := make(chan bool)
	go func() {
		defer close(changed)
		for range 20 {
			r.control("POST", "/secrets/a", `{"value":"two"}`)
		}
	}()
	for going := true; going; {
		if _, err := r.api.secrets.value("a"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			going = false
		default:
		}
	}
}

// TestKilledProcess checks that a process that was killed is not listed after the answer, although its children hold its output.
func TestKilledProcess(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	killed := make(chan struct{})
	r.fake.begin = func(_ context.Context, c runner.Command) error { <-killed; return nil }
	e := r.api.store.get(rec.ID)
	p := &process{of: e, dead: make(chan struct{}), info: &envd.ProcessInfo{Pid: 7}}
	run, _ := e.live.Start(t.Context(), runner.Command{})
	p.run = run
	e.procs.add(p)
	var output sync.WaitGroup
	output.Add(1)
	defer output.Done()
	go p.wait(nil, &output)
	close(killed)
	p.await()
	kind := of(rec, "49983", "Content-Type: application/json")
	if _, text := r.send("POST", "/process.Process/List", `{}`, kind...); strings.Contains(text, "pid") {
		t.Errorf("it is listed: %s", text)
	}
	if resp, text := r.send("POST", "/process.Process/SendSignal", `{"process":{"pid":7},"signal":"SIGNAL_SIGKILL"}`, kind...); resp.StatusCode != http.StatusNotFound {
		t.Errorf("it is killed again: %d %s", resp.StatusCode, text)
	}
	if _, err := e.procs.find(&envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: 7}}, true); err != nil {
		t.Errorf("a client that connects misses the end: %v", err)
	}
}

// homely is a sandbox with an account of the default user's name. Its fails-th operation fails with err.
type homely struct {
	server.Sandbox
	fails int
	err   error
}

func (s *homely) Tree(context.Context, *runner.User, string, fileops.Request, func(io.Writer) error, func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error) {
	if s.fails--; s.fails == 0 {
		return nil, s.err
	}
	return &fileops.Answer{Home: &fileops.Home{Found: true, Dir: "/home/user", UID: 1000, GID: 1000, Gives: true}}, nil
}

// TestAccountAgain checks that a failure of one operation decides nothing about an account, except that the sandbox cannot have its
// id.
func TestAccountAgain(t *testing.T) {
	for fails := range 3 {
		e := &entry{live: &homely{fails: fails + 1, err: context.Canceled}}
		if a, err := e.account(t.Context(), ""); err == nil {
			t.Errorf("operation %d: %+v", fails+1, a)
		}
		if a, err := e.account(t.Context(), ""); err != nil || a.user == nil || !a.gift {
			t.Errorf("after a failure of operation %d: %+v, %v", fails+1, a, err)
		}
	}
	e := &entry{live: &homely{fails: 2, err: session.ErrInvalid}}
	if a, err := e.account(t.Context(), ""); err != nil || a.user != nil {
		t.Errorf("an id that the sandbox cannot have: %+v, %v", a, err)
	}
}
