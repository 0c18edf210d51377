package engine

import (
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

func TestExpiry(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := runner.Duration(time.Hour)
	for _, row := range []struct {
		name     string
		ttl, age runner.Duration
		used     time.Duration
		want     time.Duration // since its creation
	}{
		{"default", 0, 0, 0, 48 * time.Hour},
		{"unused", hour, 0, 0, time.Hour},
		{"used", hour, 0, 5 * time.Hour, 6 * time.Hour},
		{"age", hour, 2 * hour, 90 * time.Minute, 2 * time.Hour},
		{"age over", hour, 2 * hour, 5 * time.Hour, 2 * time.Hour},
		{"age far away", hour, 100 * hour, 0, time.Hour},
	} {
		got := expiry(runner.Spec{TTL: row.ttl, MaxAge: row.age}, made, made.Add(row.used))
		if got.Sub(made) != row.want {
			t.Errorf("%s: after %v, want %v", row.name, got.Sub(made), row.want)
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
		if got := strings.Join(differences(runner.Arguments(base()), runner.Arguments(asked)), "; "); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
	// A default differs from no value; a value differs from a default.
	none, open := []runner.Argument{{Name: "egress", Value: "none", Default: true}}, []runner.Argument{{Name: "egress", Value: "open"}}
	if got := differences(open, none); got != nil {
		t.Errorf("a default: %q", got)
	}
	if got := differences(none, open); len(got) != 1 || got[0] != `egress: created with "none", requested "open"` {
		t.Errorf("against a default: %q", got)
	}
}

// TestSecretsUnlike checks that secrets are equal if value, host and header are, and that no text contains a value.
func TestSecretsUnlike(t *testing.T) {
	has := runner.Secret{Name: "T", Value: "hidden", Host: "a.example"}
	s := &sandbox{id: "s", egress: &runner.Egress{Secrets: []runner.Secret{has}}}
	for name, row := range map[string]struct {
		asked []runner.Secret
		want  string
	}{
		"none":  {nil, ""},
		"same":  {[]runner.Secret{has}, ""},
		"value": {[]runner.Secret{{Name: "T", Value: "other", Host: "a.example"}}, "secret T: the sandbox was started with another value, host or header"},
		"host":  {[]runner.Secret{{Name: "T", Value: "hidden", Host: "b.example"}}, "secret T: the sandbox was started with another value, host or header"},
		"more":  {[]runner.Secret{has, {Name: "U", Value: "hidden", Host: "a.example"}}, "secret U: the sandbox was started without it"},
	} {
		err := s.hasSecrets(row.asked)
		if (err == nil) != (row.want == "") || err != nil && (codeOf(err) != ipc.CodeInvalid || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if err := new(sandbox).hasSecrets([]runner.Secret{has}); err == nil {
		t.Error("a sandbox without a network has a secret")
	}
}

func TestTold(t *testing.T) {
	changes := []upper.Change{
		{Path: "etc/hosts", Kind: 'M'}, {Path: "in", Kind: 'A'}, {Path: "in/x", Kind: 'A'}, {Path: "out", Kind: 'A'},
		{Path: "workspace", Kind: 'A'}, {Path: "workspace/.envrc", Kind: 'A'}, {Path: "x/.envrc", Kind: 'D'}, {Path: "etc/demesne-ca.pem", Kind: 'A'},
	}
	for _, row := range []struct {
		image bool
		want  string
	}{
		{false, "M/etc/hosts A/workspace/.envrc!direnv D/x/.envrc A/etc/demesne-ca.pem "},
		{true, "A/workspace/.envrc!direnv D/x/.envrc "},
	} {
		got := ""
		for _, c := range told(changes, true, row.image).Changes {
			got += c.Kind + string(c.Path)
			if c.Executes != "" {
				got += "!" + c.Executes
			}
			got += " "
		}
		if got != row.want {
			t.Errorf("image %t: %q, want %q", row.image, got, row.want)
		}
	}
	if !told(nil, false, false).Truncated {
		t.Error("an unreported secret is not mentioned")
	}
}

func TestStopped(t *testing.T) {
	for code, rec := range map[ipc.Code]store.Record{
		ipc.CodeStopped: {Info: runner.Info{State: runner.Stopped}},
		ipc.CodeBusy:    {Info: runner.Info{State: runner.Running}},
		ipc.CodeInvalid: {Snapshot: true},
	} {
		if got := codeOf(stopped(rec)); got != code {
			t.Errorf("%+v: %s, want %s", rec, got, code)
		}
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

// TestKeeps checks the code of the error: a sandbox that ended without its files is gone, and never lacked a directory.
func TestKeeps(t *testing.T) {
	for _, row := range []struct {
		name         string
		stay, ending bool
		want         ipc.Code
	}{
		{"kept", true, false, ""},
		{"stopped", true, true, ""},
		{"removed", false, true, ipc.CodeGone},
		{"without a place", false, false, ipc.CodeInvalid},
	} {
		s := &sandbox{ending: row.ending}
		s.kept.stay = row.stay
		err := s.keeps("fork sandbox")
		if row.want == "" && err != nil || row.want != "" && codeOf(err) != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
