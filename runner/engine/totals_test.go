package engine

import (
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits"
)

func TestFits(t *testing.T) {
	const gib = 1 << 30
	small := runner.Limits{Memory: gib, Disk: gib, PIDs: 100, CPUs: 1}
	endless := runner.Limits{Memory: limits.None, Disk: limits.None, PIDs: limits.None, CPUs: limits.None}
	for _, c := range []struct {
		name        string
		most, asked runner.Limits
		live        []runner.Limits
		want        string // in the error; empty: it fits
	}{
		{"no bound", runner.Limits{}, endless, []runner.Limits{endless}, ""},
		{"first", runner.Limits{Memory: gib}, small, nil, ""},
		{"just", runner.Limits{Memory: 3 * gib, Disk: 3 * gib, PIDs: 300, CPUs: 3}, small, []runner.Limits{small, small}, ""},
		{"memory", runner.Limits{Memory: 3*gib - 1}, small, []runner.Limits{small, small}, "memory limits together may be at most 3221225471 bytes: with 2 other sandboxes it would be 3221225472"},
		{"disk", runner.Limits{Disk: gib}, small, []runner.Limits{small}, "disk"},
		{"pids", runner.Limits{PIDs: 150}, small, []runner.Limits{small}, "pids"},
		{"cpus", runner.Limits{CPUs: 1.5}, small, []runner.Limits{small}, "cpus"},
		{"alone too much", runner.Limits{Memory: gib / 2}, small, nil, "with 0 other sandboxes"},
		{"without a limit", runner.Limits{CPUs: 100}, runner.Limits{CPUs: limits.None}, nil, "this sandbox sets no limit"},
		{"beside one without", runner.Limits{Memory: 100 * gib}, small, []runner.Limits{endless}, "memory"},
	} {
		err := fits(c.most, c.asked, c.live)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
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
		old := runsIn(t)
		e := old.e
		old.spec.Key, old.spec.Name, old.spec.Limits = "k", "mine", runner.Limits{PIDs: 10}
		old.receipt = &runner.Receipt{}
		other := e.newSandbox("o", runner.Spec{Name: "taken"})
		e.sandboxes[other.id] = other
		row.spec.Key, row.spec.Lifetime = "k", runner.Persistent
		s := e.newSandbox("n", row.spec)
		s.asker = &caller{most: &runner.Limits{PIDs: 10}}
		_, replaced, err := e.takeKey(s, true)
		if row.want == "" && err != nil || row.want != "" && codeOf(err) != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
		if gone := old.done(); gone != replaced || gone != (row.want == "") {
			t.Errorf("%s: removed %t, replaced %t", row.name, gone, replaced)
		}
	}
}
