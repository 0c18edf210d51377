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
	"demesne/runner/outlet"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// What allows nothing is no network, and is to be well said all the same.
func TestAdmitEgress(t *testing.T) {
	wrong := errors.New("wrong")
	for _, c := range []struct {
		name         string
		egress       *runner.Egress
		network, ask bool
		useless      bool // refused, whatever the answer
	}{
		{"nothing said", nil, false, false, false},
		{"zero", &runner.Egress{}, false, false, false},
		{"none", &runner.Egress{Mode: "none"}, false, false, false},
		{"only denied", &runner.Egress{Deny: []string{"a.test"}}, false, true, false},
		{"a secret", &runner.Egress{Secrets: []runner.Secret{{Name: "T"}}}, false, true, true},
		{"one rule", &runner.Egress{Allow: []string{"a.test"}, Deny: []string{"b.test"}}, true, false, false},
		{"somebody to ask", &runner.Egress{Ask: runner.Duration(time.Second)}, true, false, false},
		{"a mode", &runner.Egress{Mode: "open"}, true, false, false},
		{"a mode that nobody knows", &runner.Egress{Mode: "some"}, true, false, false},
		{"learn", &runner.Egress{Learn: true}, true, false, false},
	} {
		for _, answer := range []error{nil, wrong} {
			spec, asked := runner.Spec{Egress: c.egress}, false
			e, err := admitEgress(&spec, func(runner.Egress) error { asked = true; return answer })
			if (e != nil) != c.network || (spec.Egress != nil) != c.network || asked != c.ask {
				t.Errorf("%s: %+v, asked %t, spec has %+v", c.name, e, asked, spec.Egress)
			}
			if failed := c.useless || c.ask && answer != nil; (err != nil) != failed || failed && wire.AsError(err).Code != wire.CodeInvalid {
				t.Errorf("%s: %v", c.name, err)
			}
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
	e, err := admitEgress(&spec, nil)
	if err != nil || e.Upstream == nil || len(e.Secrets) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	if b, err := json.Marshal(spec); err != nil || strings.Contains(string(b), "hidden") {
		t.Errorf("spec tells: %s, %v", b, err)
	}
	if asked.Upstream == nil || asked.Secrets == nil {
		t.Error("the caller's own was changed")
	}
}

func TestNetworkWord(t *testing.T) {
	for want, p := range map[string]outlet.Plan{
		"open": {Open: true, Rules: 3}, "filtered: 0 rules": {}, "filtered: 1 rule": {Rules: 1}, "filtered: 2 rules": {Rules: 2},
	} {
		if got := networkWord(p); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
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

func TestEnviron(t *testing.T) {
	env := environ("/ca.pem", true, []outlet.Var{{Name: "TOKEN", Value: "demesne-x"}})
	for _, want := range []string{"SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem", "HTTP_PROXY=http://198.18.0.1:3128", "https_proxy=http://198.18.0.1:3128", "no_proxy=localhost,127.0.0.1,::1", "TOKEN=demesne-x", "GOPROXY=http://127.0.0.1:8087,direct"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
}

// A question is answered once, by whoever is first; nobody waits for a late answer.
func TestQuestions(t *testing.T) {
	o := &wayOut{waiting: map[uint64]chan<- protocol.Answer{}}
	id, answered := o.question()
	o.answer(protocol.Answer{ID: id + 1}) // there is no such question
	o.answer(protocol.Answer{ID: id, Allow: true})
	o.answer(protocol.Answer{ID: id})
	if a := <-answered; !a.Allow || len(o.waiting) != 0 {
		t.Errorf("%+v, %d waiting", a, len(o.waiting))
	}
}

// Where there are no namespaces, a network is refused and not left open.
func TestMinimalRefusesNetworks(t *testing.T) {
	for name, s := range map[string]*sandbox{
		"egress": {egress: &runner.Egress{}}, "publish": {spec: runner.Spec{Publish: []runner.Port{{To: 80}}}},
	} {
		s.e = &Engine{boot: protocol.Boot{ModeWhy: "no namespaces", ModeFix: "type this"}}
		err := s.makeMinimal(nil, &stages{})
		var we *wire.Error
		if !errors.As(err, &we) || we.Code != wire.CodeRequirement || we.Hint != "type this" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMissing(t *testing.T) {
	many := make([]uint16, 100)
	for i := range many {
		many[i] = uint16(1000 + i)
	}
	for _, c := range []struct{ there, wanted, want []uint16 }{
		{nil, []uint16{22, 443}, []uint16{22, 443}},
		{[]uint16{22}, []uint16{22, 443}, []uint16{443}},
		{[]uint16{22, 443}, []uint16{443}, nil},
		{[]uint16{22}, many, many[:mostPorts-1]},
		{many[:mostPorts], []uint16{22}, nil},
	} {
		if got := missing(c.there, c.wanted); !slices.Equal(got, c.want) {
			t.Errorf("missing(%v, %v) = %v", c.there, c.wanted, got)
		}
	}
	before := []runner.Layer{{Name: "seccomp", Detail: "a"}, {Name: "gateway", Detail: "b"}}
	after := withLayers(before, []runner.Layer{{Name: "gateway", Detail: "c"}, {Name: "other", Detail: "d"}})
	if len(after) != 2 || after[0].Detail != "a" || after[1].Detail != "c" || before[1].Detail != "b" {
		t.Errorf("%v became %v", before, after)
	}
}
