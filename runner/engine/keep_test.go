package engine

import (
	"sync"
	"testing"
	"time"

	"demesne/rootfs/wrote"
	"demesne/runner"
	"demesne/runner/keep"
	"demesne/runner/wire"
)

func TestExpiry(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := runner.Duration(time.Hour)
	for _, row := range []struct {
		name     string
		ttl, age runner.Duration
		used     time.Duration
		want     time.Duration // after it was made
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

func TestPolicyOf(t *testing.T) {
	base := func() runner.Spec {
		return runner.Spec{Image: "host", Key: "k", Egress: &runner.Egress{Allow: []string{"a.example"}, Log: "/l"}}
	}
	for name, row := range map[string]struct {
		change func(*runner.Spec)
		same   bool
	}{
		"nothing": {func(*runner.Spec) {}, true},
		"name":    {func(s *runner.Spec) { s.Name = "n" }, true},
		"out":     {func(s *runner.Spec) { s.Out = "/o" }, true},
		"times":   {func(s *runner.Spec) { s.TTL, s.MaxAge = 1, 1 }, true},
		"log":     {func(s *runner.Spec) { s.Egress.Log = "/m" }, true},
		"rule":    {func(s *runner.Spec) { s.Egress.Allow = []string{"b.example"} }, false},
		"no way":  {func(s *runner.Spec) { s.Egress = nil }, false},
		"input":   {func(s *runner.Spec) { s.Inputs = []runner.Input{{Path: "/p", Name: "p"}} }, false},
		"image":   {func(s *runner.Spec) { s.Rootfs = &runner.Rootfs{Digest: "d"} }, false},
		"limit":   {func(s *runner.Spec) { s.Limits.PIDs = 3 }, false},
		"nesting": {func(s *runner.Spec) { s.Nesting = true }, false},
	} {
		spec := base()
		row.change(&spec)
		log := base().Egress.Log
		if same := policyOf(spec) == policyOf(base()); same != row.same || base().Egress.Log != log {
			t.Errorf("%s: same %t", name, same)
		}
	}
}

func TestTold(t *testing.T) {
	changes := []wrote.Change{
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
		t.Error("what is not told of is not mentioned")
	}
}

func TestStopped(t *testing.T) {
	for code, rec := range map[wire.Code]keep.Record{
		wire.CodeStopped: {Info: runner.Info{State: runner.Stopped}},
		wire.CodeBusy:    {Info: runner.Info{State: runner.Running}},
		wire.CodeInvalid: {Snapshot: true},
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
				*count++ // the race detector sees who is not alone
			})
		}
	}
	all.Wait()
	if *n["a"] != 50 || *n["b"] != 50 || len(k.held) != 0 {
		t.Errorf("%d, %d; %d held", *n["a"], *n["b"], len(k.held))
	}
}

// TestKeeps: of one that ends without its files nobody is told that there was no place for them.
func TestKeeps(t *testing.T) {
	for _, row := range []struct {
		name         string
		stay, ending bool
		want         wire.Code
	}{
		{"kept", true, false, ""},
		{"stopped", true, true, ""},
		{"removed", false, true, wire.CodeGone},
		{"without a place", false, false, wire.CodeInvalid},
	} {
		s := &sandbox{ending: row.ending}
		s.kept.stay = row.stay
		err := s.keeps("fork sandbox")
		if row.want == "" && err != nil || row.want != "" && codeOf(err) != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
