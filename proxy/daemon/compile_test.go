package daemon

import (
	"strings"
	"testing"
	"time"

	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/ipc"
)

func TestPlanOf(t *testing.T) {
	rules := func(allow ...string) runner.Egress { return runner.Egress{Allow: allow} }
	for _, c := range []struct {
		name   string
		egress runner.Egress
		open   bool
		rules  int
		err    string
	}{
		{"zero", runner.Egress{}, false, 0, ""},
		{"none", runner.Egress{Mode: "none"}, false, 0, ""},
		{"only denied", runner.Egress{Deny: []string{"a.test"}}, false, 0, ""},
		{"one rule", rules("a.test"), false, 1, ""},
		{"two", rules("a.test", "*.b.test:443"), false, 2, ""},
		{"with questions", runner.Egress{Ask: runner.Duration(time.Second)}, false, 0, ""},
		{"open", runner.Egress{Mode: "open"}, true, 1, ""},
		{"learn", runner.Egress{Learn: true}, true, 1, ""},
		{"all addresses", rules("0.0.0.0/0"), true, 1, ""},
		{"in two halves", rules("0.0.0.0/1", "128.0.0.0/1"), true, 2, ""},
		{"on one port", rules("0.0.0.0/0:443"), true, 1, ""},
		{"a range", rules("10.0.0.0/8"), false, 1, ""},
		{"unknown mode", runner.Egress{Mode: "some"}, false, 0, `parse egress mode "some"`},
		{"public suffix", rules("*.com"), false, 0, `parse rule "*.com"`},
		{"port", rules("a.test:0"), false, 0, `parse rule "a.test:0"`},
		{"malformed denial", runner.Egress{Allow: []string{"a.test"}, Deny: []string{"b c"}}, false, 0, `parse rule "b c"`},
		{"upstream", runner.Egress{Mode: "open", Upstream: map[string]string{"HTTP_PROXY": "socks4://u:hidden@p"}}, false, 0, "read HTTP_PROXY"},
		{"route", runner.Egress{Routes: []runner.Route{{Port: 1, To: "https://a.test", Allow: []string{"GET /"}}}}, false, 0, ""},
		{"malformed route", runner.Egress{Routes: []runner.Route{{Port: 1, To: "https://u:hidden@a.test", Token: "hidden"}}}, false, 0, `route on port 1: its server`},
		{"secret", runner.Egress{Mode: "open", Secrets: []runner.Secret{{Name: "T", Value: "hid\nden", Host: "a.test"}}}, false, 0, `make secret "T"`},
	} {
		p, err := planOf(c.egress)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "hid") || ipc.AsError(err).Code != ipc.CodeInvalid {
				t.Errorf("%s: error %v, want %q", c.name, err, c.err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case p.Open != c.open || p.Rules != c.rules:
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

// TestModeNone: the runner knows only the mode "none" by name, because it makes no network for it.
func TestModeNone(t *testing.T) {
	m, err := policy.ParseMode("none")
	if err != nil || len(m.Rules()) != 0 || m.Everything() {
		t.Errorf("%v allows %v, %v", m, m.Rules(), err)
	}
}

// TestMemory: a process with the memory of its predecessor uses the same placeholders.
func TestMemory(t *testing.T) {
	asked := runner.Egress{Mode: "open", Secrets: []runner.Secret{{Name: "A", Value: "hidden", Host: "a.test"}, {Name: "B", Value: "hidden", Host: "b.test"}}}
	first, err := compile(asked)
	if err != nil {
		t.Fatal(err)
	}
	m, err := recall(first.remember([]byte("pem"), 1))
	if err != nil || m.Generation != 1 || string(m.CA) != "pem" {
		t.Fatalf("%+v, %v", m, err)
	}
	again, _ := compile(asked)
	again.hold(m)
	for i, v := range first.plan().Env {
		if got := again.plan().Env[i]; got != v || strings.Contains(v.Value, "hidden") {
			t.Errorf("%v, want %v", got, v)
		}
	}
	if _, err := recall([]byte("x")); err == nil {
		t.Error("nonsense was recalled")
	}
}
