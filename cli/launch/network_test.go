package launch

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/proxy/policy"
	"demesne/runner"
)

// TestEgressModes checks that --egress accepts exactly the modes of package policy.
func TestEgressModes(t *testing.T) {
	if !slices.Equal(runner.EgressModes(), policy.ModeNames()) {
		t.Errorf("--egress takes %q, package policy has %q", runner.EgressModes(), policy.ModeNames())
	}
}

func TestAddPublish(t *testing.T) {
	for in, want := range map[string]runner.Port{
		"8080:80":              {Listen: "127.0.0.1:8080", To: 80},
		"0.0.0.0:8080:80":      {Listen: "0.0.0.0:8080", To: 80},
		"[::1]:8080:65535":     {Listen: "[::1]:8080", To: 65535},
		"unix:/run/a:b.sock:1": {Listen: "unix:/run/a:b.sock", To: 1},
		"":                     {}, "80": {}, ":80": {}, "80:": {}, "0:80": {}, "80:0": {}, "80:65536": {}, "+80:80": {}, "80:+80": {},
		"localhost:80:80": {}, "::1:80:80": {}, "unix::80": {}, "-1:80": {}, "127.0.0.1:0:80": {},
	} {
		var n Network
		err := n.addPublish(in)
		if err != nil && want != (runner.Port{}) || err == nil && (want == (runner.Port{}) || n.Publish[0] != want) {
			t.Errorf("%q: %+v, %v; want %+v", in, n.Publish, err, want)
		}
	}
}

// TestTellBlocked checks that each denial prints as one line, whatever its name contains, up to a bound.
func TestTellBlocked(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	res := &runner.Result{EgressLog: "/log", Denied: []runner.Blocked{{Host: "evil.test", Port: 443, Reason: "no rule", Allow: "evil.test"}, {Host: "a\nb", Reason: "x\x1b[0m"}}}
	for range 40 {
		res.Denied = append(res.Denied, runner.Blocked{Host: "many.test", Port: 1, Reason: "no rule"})
	}
	TellBlocked((&app.Console{Files: stream.Files{Stderr: w}}), res, false)
	TellBlocked((&app.Console{Files: stream.Files{Stderr: w}}), &runner.Result{Denied: []runner.Blocked{{Host: "ghost.test", Port: 443, Reason: "the name does not resolve: no such host", Failed: true}}}, false)
	kept := &runner.Result{Sandbox: "ab12", Denied: []runner.Blocked{{Host: "2001:db8::7", Port: 22, Reason: "no rule", Allow: "[2001:db8::7]:22"}}}
	TellBlocked((&app.Console{Files: stream.Files{Stderr: w}}), kept, true)
	w.Close()
	var said bytes.Buffer
	said.ReadFrom(r)
	lines := strings.Split(strings.TrimSuffix(said.String(), "\n"), "\n")
	last := "blocked: [2001:db8::7]:22 (no rule); to allow it: demesne egress allow ab12 [2001:db8::7]:22"
	if len(lines) != blockedLines+3 || lines[blockedLines+1] != "unreachable: ghost.test:443 (the name does not resolve: no such host)" || lines[0] != "blocked: evil.test:443 (no rule); to allow it: --allow-domain evil.test" || lines[blockedLines+2] != last || lines[1] != "blocked: a b (x?[0m)" || lines[blockedLines] != "blocked: and 22 more, in /log" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}
