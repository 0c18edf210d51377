package engine

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// runnerOver returns an engine over a directory of sandboxes, and a function that returns callers of it.
func runnerOver(t *testing.T, root string) (*Engine, func(runner.Frontend, runner.Quota) *caller) {
	e := newEngine(&sandbox.Machine{Boot: api.Boot{SandboxRoot: root}})
	t.Cleanup(func() { runtime.KeepAlive(e) }) // its locks end with it
	return e, func(f runner.Frontend, q runner.Quota) *caller {
		return &caller{e: e, frontend: f, quota: q, slots: map[string]*slot{}, own: map[string]*sandbox.Sandbox{}}
	}
}

// TestReserveAtOnce checks that callers of two runners, at once, get exactly as many places as the user and each namespace
// may have.
func TestReserveAtOnce(t *testing.T) {
	root := t.TempDir()
	_, ofOne := runnerOver(t, root)
	_, ofTwo := runnerOver(t, root)
	alice := runner.FrontendOf("alice")
	var (
		all sync.WaitGroup
		mu  sync.Mutex
		got = map[runner.Frontend]int{}
	)
	for i := range 200 {
		of, front, quota := ofOne, runner.FrontendCLI, runner.Quota{}
		if i%2 > 0 {
			of = ofTwo
		}
		if i%4 > 1 {
			front, quota = alice, runner.Quota{Frontend: 5}
		}
		all.Go(func() {
			switch s, err := of(front, quota).reserve("", ""); {
			case err == nil:
				mu.Lock()
				got[s.frontend]++
				mu.Unlock()
			case codeOf(err) != ipc.CodeTooMany || ipc.AsError(err).Hint == "":
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got[runner.FrontendCLI]+got[alice] != runner.MostSandboxes || got[alice] > 5 {
		t.Errorf("%v", got)
	}
}

// TestReserveOnce checks what takes a place and what gives it back.
func TestReserveOnce(t *testing.T) {
	root := t.TempDir()
	e, of := runnerOver(t, root)
	_, ofOther := runnerOver(t, root)
	c, other := of("", runner.Quota{User: 1}), ofOther(runner.FrontendMCP, runner.Quota{User: 1})
	full := func(step string, want bool) {
		t.Helper()
		for name, c := range map[string]*caller{"own": of("", runner.Quota{User: 1}), "other": other} {
			s, err := c.reserve("", "")
			if (err != nil) != want {
				t.Errorf("%s: %s runner: %v", step, name, err)
			}
			s.release()
		}
	}
	full("nothing", false)
	ahead, err := c.reserveAhead(api.ReserveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	full("reserved", true)
	if s := other.takeSlot(ahead.Slot); s != nil {
		t.Error("another caller took it")
	}
	c.takeSlot(ahead.Slot).release()
	full("released", false)

	for name, s := range map[string]*sandbox.Sandbox{
		"its own id":   nil,
		"a prepared's": sandbox.New(e.env(), "p", runner.Spec{Lifetime: runner.Persistent}),
	} {
		place, err := c.reserve("", "")
		if err != nil {
			t.Fatal(err)
		}
		if s == nil {
			s = sandbox.New(e.env(), place.id, runner.Spec{Lifetime: runner.Persistent})
		}
		if err := e.table.claim(s, nil, place); err != nil {
			t.Fatal(err)
		}
		place.release()
		full(name, true)
		e.table.drop(s)
		full(name+" dropped", false)
	}

	for name, busy := range map[string]bool{"gone": true, "there": false} {
		c := of("", runner.Quota{User: 1})
		c.gone = busy
		if _, err := c.reserveAhead(api.ReserveRequest{}); err != nil {
			t.Fatal(err)
		}
		full("a caller that is "+name, !busy)
		for id := range c.slots {
			c.takeSlot(id).release()
		}
	}
	if list, err := os.ReadDir(root); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestReserveReplace checks that sandboxes are replaced at once, in two runners, where no place is free: each new one takes
// over the place of the old one, which is not free for others meanwhile, nor if the replacement fails.
func TestReserveReplace(t *testing.T) {
	root := t.TempDir()
	e, ofOne := runnerOver(t, root)
	_, ofTwo := runnerOver(t, root)
	q := runner.Quota{User: 3, Frontend: 3}
	one, two := ofOne("", q), ofTwo("", q)
	var old []string
	for range 3 {
		place, err := one.reserve("", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := e.table.claim(sandbox.New(e.env(), place.id, runner.Spec{Lifetime: runner.Persistent}), nil, place); err != nil {
			t.Fatal(err)
		}
		old = append(old, place.id)
	}
	full := func(step string) {
		t.Helper()
		for name, c := range map[string]*caller{"one": one, "two": two} {
			if s, err := c.reserve("", ""); codeOf(err) != ipc.CodeTooMany {
				t.Errorf("%s: runner %s: %v, %v", step, name, s, err)
			}
		}
	}
	var taken []*slot
	for i, c := range []*caller{one, one, two} {
		s, err := c.reserve(fmt.Sprint("k", i), old[i])
		if err != nil {
			t.Fatalf("replacement %d: %v", i, err)
		}
		taken = append(taken, s)
		full(fmt.Sprint("replacement ", i))
	}
	for _, s := range taken {
		s.release()
		full("a failed replacement")
	}
}

// TestReserveKey checks that a call for a key that another call makes needs no place, and that it needs one if that call
// belongs to another frontend.
func TestReserveKey(t *testing.T) {
	_, of := runnerOver(t, t.TempDir())
	q := runner.Quota{User: 1}
	if s, err := of("", q).reserveAhead(api.ReserveRequest{Key: "k"}); err != nil || s.Slot == "" {
		t.Fatal(s, err)
	}
	if s, err := of("", q).reserveAhead(api.ReserveRequest{Key: "k"}); err != nil || s.Slot != "" {
		t.Errorf("the same key: %v, %v", s, err)
	}
	for _, c := range []struct {
		front runner.Frontend
		key   string
	}{{runner.FrontendMCP, "k"}, {"", "other"}, {"", ""}} {
		if s, err := of(c.front, q).reserveAhead(api.ReserveRequest{Key: c.key}); codeOf(err) != ipc.CodeTooMany {
			t.Errorf("%v: %v, %v", c, s, err)
		}
	}
}

// TestReserveKilled checks that places of a killed runner do not count, and that a sweep removes them.
func TestReserveKilled(t *testing.T) {
	root := t.TempDir()
	_, of := runnerOver(t, root)
	for i := range 3 {
		if err := os.WriteFile(fmt.Sprintf("%s/.slot-dead%d..", root, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := of("", runner.Quota{User: 1}).reserve("", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/.slot-late..", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Sweep(); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(root); err != nil || len(list) != 1 || !strings.Contains(list[0].Name(), s.id) {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestAdmitOne checks which bound refuses a sandbox.
func TestAdmitOne(t *testing.T) {
	alice, bob := runner.FrontendOf("alice"), runner.FrontendOf("bob")
	have := func(frontends ...runner.Frontend) map[string]runner.Frontend {
		all := map[string]runner.Frontend{}
		for i, f := range frontends {
			all[fmt.Sprint(i)] = f
		}
		return all
	}
	for _, c := range []struct {
		quota   runner.Quota
		counted map[string]runner.Frontend
		want    string
	}{
		{runner.Quota{}, have(), ""},
		{runner.Quota{User: 2}, have(alice), ""},
		{runner.Quota{User: 2}, have("", bob), "too many sandboxes (2)"},
		{runner.Quota{User: 9, Frontend: 2}, have(alice, bob, bob, ""), ""},
		{runner.Quota{User: 9, Frontend: 2}, have(alice, bob, alice), "too many sandboxes (2)"},
		{runner.Quota{User: 3, Frontend: 2}, have(alice, bob, alice), "too many sandboxes (3)"},
	} {
		err := admitOne(c.quota, alice, c.counted)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v of %v: %v, want %q", c.quota, c.counted, err, c.want)
		}
	}
}
