package e2b

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
