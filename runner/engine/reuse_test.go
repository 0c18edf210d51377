package engine

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// TestListUnreadable checks that a store that cannot be read is an error for list, and that a missing one is empty.
func TestListUnreadable(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for root, fails := range map[string]bool{"": false, file + "-missing": false, file: true} {
		e := newEngine(&sandbox.Machine{Boot: api.Boot{SandboxRoot: root}})
		if list, err := e.table.list(); len(list) > 0 || (err != nil) != fails {
			t.Errorf("%q: %v, %v", root, list, err)
		}
	}
}

// TestReplaceRefused checks that a sandbox is not removed for one that the bounds or a name then refuse, and that it
// does not count against the one that replaces it.
func TestReplaceRefused(t *testing.T) {
	for _, row := range []struct {
		name string
		spec runner.Spec
		want ipc.Code // empty: it is replaced
	}{
		{"too large", runner.Spec{Limits: runner.Limits{PIDs: 11}}, ipc.CodeTooMuch},
		{"a name in use", runner.Spec{Name: "taken"}, ipc.CodeExists},
		{"its own name and room", runner.Spec{Name: "mine", Limits: runner.Limits{PIDs: 10}}, ""},
	} {
		e := newEngine(&sandbox.Machine{})
		var err error
		if e.machine.History, err = store.OpenHistory(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		add := func(id string, spec runner.Spec) *sandbox.Sandbox {
			s := sandbox.New(e.env(), id, spec)
			e.table.all[id] = s
			s.Made(nil)
			return s
		}
		old := add("s", runner.Spec{Lifetime: runner.Persistent, Key: "k", Name: "mine", Limits: runner.Limits{PIDs: 10}})
		add("o", runner.Spec{Name: "taken"})
		row.spec.Key, row.spec.Lifetime = "k", runner.Persistent
		s := sandbox.New(e.env(), "n", row.spec)
		_, replaced, err := e.takeKey(s, nil, true, &runner.Limits{PIDs: 10}, func(string) error { return nil })
		if row.want == "" && err != nil || row.want != "" && codeOf(err) != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
		if gone := old.Done(); gone != replaced || gone != (row.want == "") {
			t.Errorf("%s: removed %t, replaced %t", row.name, gone, replaced)
		}
	}
}

// TestDifferences checks that an omitted argument differs from nothing, and that each difference names both values.
func TestDifferences(t *testing.T) {
	base := func() runner.Spec {
		return runner.Spec{Image: "host", Limits: runner.Limits{PIDs: 100}, Egress: &runner.Egress{Allow: []string{"b.example", "a.example"}}}
	}
	for name, row := range map[string]struct {
		asked func(*runner.Spec)
		want  string // the difference; empty: no difference
	}{
		"nothing":   {func(s *runner.Spec) { *s = runner.Spec{} }, ""},
		"the same":  {func(*runner.Spec) {}, ""},
		"a part":    {func(s *runner.Spec) { s.Egress = nil }, ""},
		"order":     {func(s *runner.Spec) { s.Egress.Allow = []string{"a.example", "b.example"} }, ""},
		"log":       {func(s *runner.Spec) { s.Egress.Log, s.Out = "/m", "/o" }, ""},
		"fewer":     {func(s *runner.Spec) { s.Egress.Allow = []string{"a.example"} }, `allowed domains: created with "a.example b.example", requested "a.example"`},
		"mode":      {func(s *runner.Spec) { s.Egress.Mode = "open" }, `egress: created without it, requested "open"`},
		"limit":     {func(s *runner.Spec) { s.Limits.PIDs = 3 }, `pids: created with "100", requested "3"`},
		"no limit":  {func(s *runner.Spec) { s.Limits.PIDs = -1 }, `pids: created with "100", requested "none"`},
		"image":     {func(s *runner.Spec) { s.Image = "debian" }, `image: created with "host", requested "debian"`},
		"input":     {func(s *runner.Spec) { s.Inputs = []runner.Input{{Path: "/p", Name: "q"}} }, `inputs: created without it, requested "/p:q"`},
		"workspace": {func(s *runner.Spec) { s.Workspace = "/w" }, `workspace: created without it, requested "/w"`},
		"ports":     {func(s *runner.Spec) { s.Publish = []runner.Port{{Listen: "127.0.0.1:80", To: 8}} }, `published ports: created without it, requested "127.0.0.1:80:8"`},
		"times":     {func(s *runner.Spec) { s.TTL = runner.Duration(time.Hour) }, `ttl: created without it, requested "1h0m0s"`},
		"nesting":   {func(s *runner.Spec) { s.Nesting = true }, `nesting: created without it, requested "yes"`},
		"long":      {func(s *runner.Spec) { s.Image = strings.Repeat("x", 300) }, `image: created with "host", requested "` + strings.Repeat("x", 200) + `…"`},
	} {
		asked := base()
		row.asked(&asked)
		if got := strings.Join(differences(base().Arguments(), asked.Arguments()), "; "); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
	// A requested default equals every value; a requested value can differ from a default.
	none, open := []runner.Argument{{Name: "egress", Value: "none", Default: true}}, []runner.Argument{{Name: "egress", Value: "open"}}
	if got := differences(open, none); got != nil {
		t.Errorf("a default: %q", got)
	}
	if got := differences(none, open); len(got) != 1 || got[0] != `egress: created with "none", requested "open"` {
		t.Errorf("against a default: %q", got)
	}
}

func TestKeyLocks(t *testing.T) {
	var k keyLocks
	var all sync.WaitGroup
	n := map[string]*int{"a": new(int), "b": new(int)}
	for key, count := range n {
		for range 50 {
			all.Go(func() {
				defer k.lock(key)()
				*count++ // the race detector reports a second goroutine here
			})
		}
	}
	all.Wait()
	if *n["a"] != 50 || *n["b"] != 50 || len(k.held) != 0 {
		t.Errorf("%d, %d; %d held", *n["a"], *n["b"], len(k.held))
	}
}
