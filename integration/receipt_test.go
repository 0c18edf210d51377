package integration

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReceipt(t *testing.T) {
	b := newBox(t)
	p, r := b.report(nil, "sh", "-c", "echo out; echo err >&2")
	rc := p.Receipt
	if p.Stdout != "out\n" || p.Stderr != "err\n" || p.Sandbox == "" || p.Reason != "exited" {
		t.Errorf("result: %s", r.stdout)
	}
	var u unix.Utsname
	unix.Uname(&u)
	if rc.Version != 1 || rc.Kernel != unix.ByteSliceToString(u.Release[:]) || len(rc.Seccomp) != 64 || rc.Network != "none" || len(rc.UIDMap) == 0 {
		t.Errorf("receipt: %s", r.stdout)
	}
	for _, l := range rc.Layers {
		if l.Status != "held" && l.Status != "off" && l.Why == "" {
			t.Errorf("layer %s is %s and does not say why", l.Name, l.Status)
		}
	}
	want := map[string]bool{"memory": true, "pids": true, "disk": true}
	for _, l := range rc.Limits {
		delete(want, l.Name)
		if l.Mechanism == "" && l.Value != "none" || l.Status == "" {
			t.Errorf("limit %+v", l)
		}
	}
	if len(want) > 0 {
		t.Errorf("no %v in %+v", want, rc.Limits)
	}
	if raw, err := os.ReadFile("/sys/kernel/security/landlock/abi"); err == nil && len(raw) > 0 && rc.Landlock == 0 {
		t.Error("the kernel has Landlock, the receipt does not")
	}
}

// TestReceiptNesting checks that a layer left out on request has the status off.
func TestReceiptNesting(t *testing.T) {
	b := newBox(t)
	p, r := b.report([]string{"--nesting"}, "unshare", "-Ur", "true")
	if p.ExitCode != 0 || !strings.Contains(r.stdout, `"off"`) {
		t.Errorf("--nesting: %s", r.stdout)
	}
}

// TestReceiptFile checks that --json=FILE leaves stdout to the command.
func TestReceiptFile(t *testing.T) {
	b := newBox(t)
	r := b.demesne("run", "--json="+b.dir+"/result", "--", "echo", "streamed")
	text, err := os.ReadFile(b.dir + "/result")
	if r.stdout != "streamed\n" || err != nil || !json.Valid(text) {
		t.Errorf("--json=FILE: %+v, %v, %s", r, err, text)
	}
}

// TestRequireFull checks that --require full either holds, or is refused before the command runs.
func TestRequireFull(t *testing.T) {
	b := newBox(t)
	out := b.mkdir("o")
	p, _ := b.report(nil, "true")
	r := b.demesne("run", "--require", "full", "--out", out, "--", "touch", "/out/ran")
	_, err := os.Stat(out + "/ran")
	switch ran := err == nil; {
	case p.Receipt.Level == "full" && (r.code != 0 || !ran):
		t.Errorf("level full, and --require full says %+v", r)
	case p.Receipt.Level != "full" && (r.code != 125 || ran || !strings.Contains(r.stderr, "hint: ")):
		t.Errorf("level %s, and --require full says %+v (ran: %v)", p.Receipt.Level, r, ran)
	}
}

func TestCheck(t *testing.T) {
	b := newBox(t)
	r := b.demesne("check", "--json")
	var probes []layer
	if err := json.Unmarshal([]byte(r.stdout), &probes); err != nil {
		var wrapped struct{ Probes []layer }
		if json.Unmarshal([]byte(r.stdout), &wrapped) != nil {
			t.Fatalf("check --json: %v\n%+v", err, r)
		}
		probes = wrapped.Probes
	}
	if len(probes) < 6 {
		t.Errorf("%d probes: %s", len(probes), r.stdout)
	}
	missing := false
	for _, p := range probes {
		missing = missing || p.Status == "missing"
		if p.Status == "held" {
			continue
		}
		if p.Name == "" || p.Status == "" || p.Why == "" || p.Fix == "" {
			t.Errorf("probe %+v says too little", p)
		}
	}
	if missing != (r.code == 1) || r.code > 1 {
		t.Errorf("exit %d, missing %v", r.code, missing)
	}
	plain := b.demesne("check")
	for _, name := range []string{"user namespace", "id maps", "nested user namespace", "fresh /proc", "overlay", "network namespace", "egress path", "landlock", "seccomp", "cgroups"} {
		said := slices.ContainsFunc(probes, func(p layer) bool { return p.Name == name })
		if !said || !regexp.MustCompile(`(?m)^`+name+` +(held|degraded|missing)\b`).MatchString(plain.stdout) {
			t.Errorf("check is silent on %s:\n%s", name, plain.stdout)
		}
	}
}
