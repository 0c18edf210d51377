package integration

import (
	"os/exec"
	"strings"
	"testing"
)

// Tests of machines that refuse single system calls, as containers, units and other sandboxes do.

// under returns a function that starts the CLI under a filter of testdata/c/refuse.c.
func (b *box) under(refusals ...string) func(args ...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		return b.command(tools+"/refuse", append(append(append([]string{}, refusals...), bin+"/demesne"), args...)...)
	}
}

// reason returns why a layer is not held.
func (p report) reason(name string) string {
	for _, l := range p.Receipt.Layers {
		if l.Name == name && l.Status != "held" {
			return l.Why
		}
	}
	return ""
}

// TestRefusedMounts checks machines that allow user namespaces and refuse mounts: by AppArmor's profile of Docker, by a
// container's filter, and by a systemd unit's filter, which kills.
func TestRefusedMounts(t *testing.T) {
	for _, refusal := range []string{"mount=13", "@mount=1", "@mount=kill"} {
		t.Run(refusal, func(t *testing.T) {
			b := newBox(t)
			demesne := b.under(refusal)
			do := func(args ...string) result { return b.finish(demesne(args...)) }
			out := b.mkdir("o")
			p := b.parse(do("run", "--json", "--out", out, "--", "sh", "-c", `echo hi; echo x > "$DEMESNE_OUT/f"; exit 3`))
			if p.ExitCode != 3 || p.Stdout != "hi\n" || p.Receipt.Level != "minimal" || readFile(t, out+"/f") != "x\n" {
				t.Errorf("run: %+v", p)
			}
			if why := p.reason("mount-namespace"); !strings.Contains(why, "filter forbids mounts") {
				t.Errorf("reason %q", why)
			}
			if r := do("check"); r.code != 1 || !strings.Contains(r.stdout, "landlock               held") || !strings.Contains(r.stdout, "fix: docker run --security-opt seccomp=unconfined …   # in a container; in a systemd unit: RestrictNamespaces=no, SystemCallFilter=") {
				t.Errorf("check: %+v", r)
			}
			if r := do("run", "--require", "degraded", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "hint: ") {
				t.Errorf("--require degraded: %+v", r)
			}
			if r := do("create", "--name", "one"); r.code != 0 {
				t.Fatalf("create: %+v", r)
			}
			if r := do("exec", "one", "-c", "echo inside"); r.stdout != "inside\n" {
				t.Errorf("exec: %+v", r)
			}
			if r := do("rm", "one"); r.code != 0 {
				t.Errorf("rm: %+v", r)
			}
		})
	}
}
