package network

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// TestAdmitEgress checks that an Egress that allows nothing gives no network and must still be well formed.
func TestAdmitEgress(t *testing.T) {
	wrong := errors.New("wrong")
	for _, c := range []struct {
		name         string
		egress       *runner.Egress
		network, ask bool
		useless      bool // rejected even if the check passes
	}{
		{"nothing said", nil, false, false, false},
		{"zero", &runner.Egress{}, false, false, false},
		{"none", &runner.Egress{Mode: "none"}, false, false, false},
		{"only denied", &runner.Egress{Deny: []string{"a.test"}}, false, true, false},
		{"a secret", &runner.Egress{Secrets: []runner.Secret{{Name: "T"}}}, false, true, true},
		{"one rule", &runner.Egress{Allow: []string{"a.test"}, Deny: []string{"b.test"}}, true, false, false},
		{"a caller to ask", &runner.Egress{Ask: runner.Duration(time.Second)}, true, false, false},
		{"a gateway", &runner.Egress{Gateway: true}, true, false, false},
		{"a mode", &runner.Egress{Mode: "open"}, true, false, false},
		{"an unknown mode", &runner.Egress{Mode: "some"}, true, false, false},
		{"learn", &runner.Egress{Learn: true}, true, false, false},
		{"a listener", &runner.Egress{Listen: []uint16{8089}}, true, false, false},
	} {
		for _, answer := range []error{nil, wrong} {
			spec, asked := runner.Spec{Egress: c.egress}, false
			e, err := Admit(&spec, func(runner.Egress) error { asked = true; return answer })
			if (e != nil) != c.network || (spec.Egress != nil) != c.network || asked != c.ask {
				t.Errorf("%s: %+v, asked %t, spec has %+v", c.name, e, asked, spec.Egress)
			}
			if failed := c.useless || c.ask && answer != nil; (err != nil) != failed || failed && ipc.AsError(err).Code != ipc.CodeInvalid {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// TestAdmitEgressForgets checks that the caller's proxy and its credentials cannot be read back, and that the
// caller's own Spec does not change.
func TestAdmitEgressForgets(t *testing.T) {
	asked := &runner.Egress{
		Mode: "open", Upstream: map[string]string{"HTTPS_PROXY": "http://u:hidden@proxy.test:8080"},
		Secrets: []runner.Secret{{Name: "TOKEN", Value: "hidden", Host: "a.test"}},
	}
	spec := runner.Spec{Egress: asked}
	e, err := Admit(&spec, nil)
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
		{"learning is never lifted", inputs, runner.Egress{OpenWithInputs: true, Learn: true}, true, `--learn and input "/home/me"`},
	} {
		if got := Leaks(&c.spec, &c.egress, c.open); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
