package tree

import (
	"strings"
	"testing"

	"demesne/agents"
	"demesne/runner"
)

// TestNarrow checks that a child reaches at most what the agent reaches that starts it.
func TestNarrow(t *testing.T) {
	none, managers := agents.Request{}, agents.Request{Egress: "package-managers", Domains: []string{"a.test:443"}}
	research := agents.Request{Research: true}
	for name, c := range map[string]struct {
		parent  agents.Request
		mode    string
		domains []string
		asked   bool
		want    string
		wrong   string
	}{
		"nothing":             {parent: none, want: "none"},
		"none":                {parent: managers, mode: "none", asked: true, want: "none"},
		"the same":            {parent: managers, mode: "package-managers", asked: true, want: "package-managers"},
		"more":                {parent: none, mode: "package-managers", asked: true, wrong: `egress "package-managers" is not permitted: the agent that asks has "none"`},
		"more by default":     {parent: none, mode: "package-managers", want: "none"},
		"of research":         {parent: research, mode: "package-managers", asked: true, want: "package-managers"},
		"open":                {parent: research, mode: "open", asked: true, wrong: "egress 'open' is not permitted; use sandbox_research for unrestricted egress"},
		"open of closed":      {parent: managers, mode: "open", asked: true, wrong: "egress 'open' is not permitted"},
		"unknown":             {parent: managers, mode: "zzz", asked: true, wrong: `egress mode "zzz" is not in the allowlist (none, package-managers, open)`},
		"domain":              {parent: managers, domains: []string{"a.test:443"}, want: "none"},
		"domain of no parent": {parent: managers, domains: []string{"b.test"}, wrong: `domain "b.test" is not permitted`},
		"domain of research":  {parent: research, domains: []string{"b.test"}, want: "none"},
	} {
		n := &node{tree: &Tree{}, req: c.parent}
		got, err := n.narrow(c.mode, c.domains, c.asked)
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.HasPrefix(err.Error(), c.wrong) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestNarrowLimits checks that no limit of a child is wider than its parent's, which may be the default.
func TestNarrowLimits(t *testing.T) {
	for _, c := range []struct{ asked, parent, want int64 }{
		{0, 0, 0}, {100, 0, 100}, {1 << 40, 0, 0}, {-1, 0, 0},
		{0, 1000, 1000}, {100, 1000, 100}, {2000, 1000, 1000}, {-1, 1000, 1000},
		{0, -1, -1}, {2000, -1, 2000}, {-1, -1, -1},
	} {
		if got := narrowLimits(runner.Limits{PIDs: c.asked}, runner.Limits{PIDs: c.parent}); got.PIDs != c.want {
			t.Errorf("%d of at most %d: %d, want %d", c.asked, c.parent, got.PIDs, c.want)
		}
	}
	if got := narrowLimits(runner.Limits{CPUs: 4}, runner.Limits{CPUs: 2}); got.CPUs != 2 {
		t.Errorf("%v", got.CPUs)
	}
	if got := narrowLimits(runner.Limits{CPUs: 4}, runner.Limits{}); got.CPUs != 4 {
		t.Errorf("%v", got.CPUs)
	}
}
