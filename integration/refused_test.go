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

// TestRefusedOpenat2 checks that sandboxes keep their level where openat2 does not exist, with inputs, outputs, sessions,
// copies and images.
func TestRefusedOpenat2(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	for _, refusal := range []string{"openat2=38", "openat2=1"} {
		demesne := g.under(refusal)
		do := func(args ...string) string {
			t.Helper()
			r := g.finish(demesne(args...))
			if r.code != 0 {
				t.Errorf("%s: %v: %+v", refusal, args, r)
			}
			return r.stdout
		}
		out := g.mkdir("o-" + refusal)
		in := g.file("data", "data\n", 0o644)
		p := g.parse(g.finish(demesne("run", "--json", "--out", out, "--in", in, "--", "sh", "-c", "cat /in/data; echo x > /out/f")))
		if p.ExitCode != 0 || p.Stdout != "data\n" || p.Receipt.Level == "minimal" || readFile(t, out+"/f") != "x\n" {
			t.Errorf("run: %+v", p)
		}
		if got := do("check"); !strings.Contains(got, "walked by openat, because openat2 fails") {
			t.Errorf("check: %s", got)
		}
		do("create", "--name", "one", "--image", ref)
		do("exec", "one", "-c", "echo inside > /root/f")
		do("cp", "one:/root/f", g.dir+"/down")
		if got := do("diff", "one"); !strings.Contains(got, "/root/f") || readFile(t, g.dir+"/down") != "inside\n" {
			t.Errorf("diff: %s", got)
		}
		do("stop", "one")
		do("commit", "one", "local/made:1")
		if got := do("run", "--image", "local/made:1", "--", "cat", "/root/f"); got != "inside\n" {
			t.Errorf("the image: %q", got)
		}
		do("rm", "one")
		do("rmi", "local/made:1")
		do("gc", "--all")
	}
}
