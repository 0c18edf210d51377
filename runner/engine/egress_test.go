package engine

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/wire"
)

func TestAdmitEgress(t *testing.T) {
	rules := func(allow ...string) *runner.Egress { return &runner.Egress{Allow: allow} }
	for _, c := range []struct {
		name    string
		egress  *runner.Egress
		network string // "" for none
		err     string
	}{
		{"nothing said", nil, "", ""},
		{"zero", &runner.Egress{}, "", ""},
		{"none", &runner.Egress{Mode: "none"}, "", ""},
		{"only denied", &runner.Egress{Deny: []string{"a.test"}}, "", ""},
		{"one rule", rules("a.test"), "filtered: 1 rule", ""},
		{"two", rules("a.test", "*.b.test:443"), "filtered: 2 rules", ""},
		{"somebody to ask", &runner.Egress{Ask: runner.Duration(time.Second)}, "filtered: 0 rules", ""},
		{"open", &runner.Egress{Mode: "open"}, "open", ""},
		{"learn", &runner.Egress{Learn: true}, "open", ""},
		{"all addresses", rules("0.0.0.0/0"), "open", ""},
		{"in two halves", rules("0.0.0.0/1", "128.0.0.0/1"), "open", ""},
		{"on one port", rules("0.0.0.0/0:443"), "open", ""},
		{"a range", rules("10.0.0.0/8"), "filtered: 1 rule", ""},
		{"unknown mode", &runner.Egress{Mode: "some"}, "", `create sandbox: parse egress mode "some"`},
		{"public suffix", rules("*.com"), "", `parse rule "*.com"`},
		{"port", rules("a.test:0"), "", `parse rule "a.test:0"`},
		{"malformed denial", &runner.Egress{Allow: []string{"a.test"}, Deny: []string{"b c"}}, "", `parse rule "b c"`},
		{"upstream", &runner.Egress{Mode: "open", Upstream: map[string]string{"HTTP_PROXY": "socks4://u:hidden@p"}}, "", "read HTTP_PROXY"},
		{"secret", &runner.Egress{Mode: "open", Secrets: []runner.Secret{{Name: "T", Value: "hid\nden", Host: "a.test"}}}, "", `make secret "T"`},
	} {
		spec := runner.Spec{Egress: c.egress}
		e, err := admitEgress(&spec)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "hid") || wire.AsError(err).Code != wire.CodeInvalid {
				t.Errorf("%s: error %v, want %q", c.name, err, c.err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case (e == nil) != (c.network == "") || (e == nil) != (spec.Egress == nil):
			t.Errorf("%s: got %+v, spec has %+v", c.name, e, spec.Egress)
		case e != nil && e.network() != c.network:
			t.Errorf("%s: network %q, want %q", c.name, e.network(), c.network)
		}
	}
}

// What the caller's proxy and its credentials are, nobody can read back; and the caller's
// own Spec stays as it was.
func TestAdmitEgressForgets(t *testing.T) {
	asked := &runner.Egress{
		Mode: "open", Upstream: map[string]string{"HTTPS_PROXY": "http://u:hidden@proxy.test:8080"},
		Secrets: []runner.Secret{{Name: "TOKEN", Value: "hidden", Host: "a.test"}},
	}
	spec := runner.Spec{Egress: asked}
	e, err := admitEgress(&spec)
	if err != nil || e.upstream == nil || len(e.secrets) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	if b, err := json.Marshal(spec); err != nil || strings.Contains(string(b), "hidden") {
		t.Errorf("spec tells: %s, %v", b, err)
	}
	if asked.Upstream == nil || asked.Secrets == nil {
		t.Error("the caller's own was changed")
	}
}

func TestLeaks(t *testing.T) {
	inputs := runner.Spec{Inputs: []runner.Input{{Path: "/home/me", Name: "me"}}}
	workspace := runner.Spec{Workspace: "/w"}
	dir := runner.Spec{Rootfs: &runner.Rootfs{Dir: "/d"}}
	image := runner.Spec{Rootfs: &runner.Rootfs{Layers: []string{"sha256:0"}}}
	for _, c := range []struct {
		name   string
		spec   runner.Spec
		egress runner.Egress
		open   bool
		want   string
	}{
		{"nothing to leak", runner.Spec{}, runner.Egress{}, true, ""},
		{"an image's files", image, runner.Egress{}, true, ""},
		{"filtered", inputs, runner.Egress{}, false, ""},
		{"inputs", inputs, runner.Egress{}, true, `open egress and input "/home/me"`},
		{"workspace", workspace, runner.Egress{}, true, `open egress and workspace "/w"`},
		{"directory", dir, runner.Egress{}, true, `open egress and directory "/d"`},
		{"lifted", inputs, runner.Egress{OpenWithInputs: true}, true, ""},
		{"learning is never lifted", inputs, runner.Egress{OpenWithInputs: true, Learn: true}, true, `egress that learns and input "/home/me"`},
	} {
		if got := leaks(&c.spec, &c.egress, c.open); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSince(t *testing.T) {
	a, b := runner.Blocked{Host: "a", Port: 443, Reason: "no rule"}, runner.Blocked{Host: "b", Reason: "no rule"}
	times := func(x runner.Blocked, n int) runner.Blocked { x.Times = n; return x }
	for _, c := range []struct {
		name              string
		before, now, want []runner.Blocked
	}{
		{"nothing", nil, nil, nil},
		{"the first command's", nil, []runner.Blocked{times(a, 2)}, []runner.Blocked{times(a, 2)}},
		{"another's", []runner.Blocked{times(a, 2)}, []runner.Blocked{times(a, 2)}, nil},
		{"more of it, and something new", []runner.Blocked{times(a, 2)}, []runner.Blocked{times(a, 5), times(b, 1)}, []runner.Blocked{times(a, 3), times(b, 1)}},
	} {
		if got := since(c.before, c.now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOutletEnv(t *testing.T) {
	e, err := admitEgress(&runner.Spec{Egress: &runner.Egress{Allow: []string{"a.test"}, Secrets: []runner.Secret{{Name: "TOKEN", Value: "hidden", Host: "a.test"}}}})
	if err != nil {
		t.Fatal(err)
	}
	env := (&outlet{egress: e}).env("/ca.pem")
	for _, want := range []string{"SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem", "HTTP_PROXY=http://198.18.0.1:3128", "https_proxy=http://198.18.0.1:3128", "no_proxy=localhost,127.0.0.1,::1"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	if all := strings.Join(env, "\n"); strings.Contains(all, "hidden") || !strings.Contains(all, "\nTOKEN=demesne-") {
		t.Errorf("of a secret: %s", all)
	}
}

// A question is answered once, by whoever is first; nobody waits for a late answer.
func TestOutletQuestions(t *testing.T) {
	o := &outlet{waiting: map[uint64]chan<- bool{}}
	id, answered := o.question()
	o.answer(id+1, false) // there is no such question
	o.answer(id, true)
	o.answer(id, false)
	if yes := <-answered; !yes || len(o.waiting) != 0 {
		t.Errorf("answer %t, %d waiting", yes, len(o.waiting))
	}
}

// Where there are no namespaces, a network is refused and not left open.
func TestMinimalRefusesNetworks(t *testing.T) {
	for name, s := range map[string]*sandbox{
		"egress": {egress: &egress{}}, "publish": {spec: runner.Spec{Publish: []runner.Port{{To: 80}}}},
	} {
		s.e = &Engine{boot: runner.Boot{ModeWhy: "no namespaces", ModeFix: "type this"}}
		err := s.makeMinimal(nil, &stages{})
		var we *wire.Error
		if !errors.As(err, &we) || we.Code != wire.CodeRequirement || we.Hint != "type this" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
