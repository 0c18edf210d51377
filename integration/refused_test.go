package integration

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// Tests of machines that refuse single system calls, as containers, units and other sandboxes do.

// refusing returns a function that starts the CLI under a filter of testdata/c/refuse.c.
func (b *box) refusing(refusals ...string) func(args ...string) *exec.Cmd {
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

// fixes reports whether check names what lifts the filter: docker's option in a docker container, text elsewhere.
func fixes(r result, text string) bool {
	if strings.Contains(r.stdout, "in this docker container") {
		text = "fix: docker run --security-opt seccomp=unconfined"
	}
	return strings.Contains(r.stdout, text)
}

// TestRefusedMounts checks machines that allow user namespaces and refuse mounts: by AppArmor's profile of Docker, by a
// container's filter, and by a systemd unit's filter, which kills.
func TestRefusedMounts(t *testing.T) {
	for _, refusal := range []string{"mount=13", "@mount=1", "@mount=kill"} {
		t.Run(refusal, func(t *testing.T) {
			b := newBox(t)
			demesne := b.refusing(refusal)
			do := func(args ...string) result { return b.finish(demesne(args...)) }
			out := b.mkdir("o")
			p := b.parse(do("run", "--json", "--out", out, "--", "sh", "-c", `echo hi; echo x > "$DEMESNE_OUT/f"; exit 3`))
			if p.ExitCode != 3 || p.Stdout != "hi\n" || p.Receipt.Level != "minimal" || readFile(t, out+"/f") != "x\n" {
				t.Errorf("run: %+v", p)
			}
			if why := p.reason("mount-namespace"); !strings.Contains(why, "filter forbids mounts") {
				t.Errorf("reason %q", why)
			}
			if r := do("check"); r.code != 1 || !strings.Contains(r.stdout, "landlock               held") || !fixes(r, "fix: docker run --security-opt seccomp=unconfined …   # in a container; in a systemd unit: RestrictNamespaces=no, SystemCallFilter=") {
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

// TestRefusedSandboxing checks units with SystemCallFilter=@system-service of systemd 252, in which neither mounts nor Landlock
// and seccomp(2) are: nothing would confine a sandbox. Each use says so in one line with a fix, and no program dies of SIGSYS.
func TestRefusedSandboxing(t *testing.T) {
	for _, refusal := range []string{"~@system-service=kill", "~@system-service=1"} {
		b, _ := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{} })
		demesne := b.refusing(refusal)
		do := func(args ...string) result { return b.finish(demesne(args...)) }
		const why = "nothing would confine"
		fixed := func(text string) bool { // in the words of this machine, which may be a container
			return strings.Contains(text, "SystemCallFilter=") || strings.Contains(text, "--security-opt seccomp=unconfined")
		}
		for _, args := range [][]string{
			{"run", "--", "true"}, {"run", "--allow-domain", "example.test", "--", "true"}, {"create", "--name", "one"}, {"agent", "run", "--script", "true", "Work."},
		} {
			r := do(args...)
			if r.code != 125 || !strings.Contains(r.stderr, why) || !strings.Contains(r.stderr, "a seccomp filter forbids Landlock") || args[0] != "agent" && !fixed(r.stderr) {
				t.Errorf("%s: %q: %+v", refusal, args, r)
			}
		}
		if r := do("check"); r.code != 1 || !strings.Contains(r.stdout, "demesne run fails here") || !strings.Contains(r.stdout, "a seccomp filter forbids Landlock") || !fixed(r.stdout) {
			t.Errorf("%s: check: %+v", refusal, r)
		}
		mcp := demesne("mcp")
		mcp.Stdin = strings.NewReader(defaultCall)
		if r := b.finish(mcp); r.code != 0 || !strings.Contains(r.stdout, why) || !strings.Contains(r.stdout, `"isError":true`) {
			t.Errorf("%s: mcp: %+v", refusal, r)
		}
	}
}

// TestRefusedNested checks machines that allow the runner's user namespace and refuse the nested ones of sandboxes: one
// namespace in all, and for root Debian's kernel.unprivileged_userns_clone=0, which this kernel may not have. The level is
// minimal then, for runs, sessions and images. The gallery's gc has namespaces, and removes the layers of that level too.
func TestRefusedNested(t *testing.T) {
	ways := map[string]struct{ flag, script, why, fix string }{"one namespace": {
		"-r", "echo 1 > /proc/sys/user/max_user_namespaces", "is used up: make nested user namespace", "sysctl -w user.max_user_namespaces="}}
	if os.Getuid() == 0 {
		ways["Debian's sysctl"] = struct{ flag, script, why, fix string }{
			"-m", `d=$(mktemp -d); mount -t tmpfs none "$d"; cp -r /proc/sys/kernel/. "$d" 2>/dev/null; echo 0 > "$d/unprivileged_userns_clone"; mount --move "$d" /proc/sys/kernel && rmdir "$d"`,
			"kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"}
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			g := newGallery(t)
			ref, _ := g.simple("demo:1")
			do := func(script string) result {
				return g.finish(g.command(program(t, "unshare"), way.flag, "sh", "-c", way.script+` || exit; demesne() { "$0" "$@"; }; `+script, bin+"/demesne"))
			}
			p := g.parse(do("demesne run --json -c 'echo hi; exit 3'"))
			if p.ExitCode != 3 || p.Stdout != "hi\n" || p.Receipt.Level != "minimal" || !strings.Contains(p.reason("user-namespace"), way.why) {
				t.Errorf("run: %+v", p)
			}
			if r := do("demesne check"); r.code != 1 || !strings.Contains(r.stdout, "demesne run has level minimal") || !strings.Contains(r.stdout, way.fix) {
				t.Errorf("check: %+v", r)
			}
			if r := do("demesne run --require degraded -- true"); r.code != 125 || !strings.Contains(r.stderr, "hint: ") {
				t.Errorf("--require degraded: %+v", r)
			}
			if r := do("demesne create --name one >&2; demesne exec one -c 'echo inside'; demesne rm one"); r.code != 0 || r.stdout != "inside\n" {
				t.Errorf("session: %+v", r)
			}
			r := do("demesne run --image " + ref + " -- echo ran")
			if way.flag == "-r" { // its uid 0 makes no devices
				if r.code != 125 || !strings.Contains(r.stderr, "the copy of an image needs the machine's user namespace") || !strings.Contains(r.stderr, way.fix) {
					t.Errorf("image: %+v", r)
				}
			} else if r.stdout != "ran\n" {
				t.Errorf("image: %+v", r)
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
		demesne := g.refusing(refusal)
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

// TestRefusedLinks copies files where a file without a name cannot get one, as under AppArmor profiles without mediate_deleted.
func TestRefusedLinks(t *testing.T) {
	b := newBox(t)
	demesne := b.refusing("links=2")
	do := func(args ...string) {
		t.Helper()
		if r := b.finish(demesne(args...)); r.code != 0 || r.stderr != "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	do("create", "--name", "one")
	do("exec", "one", "-c", "echo kept > f; head -c 1000000 /dev/zero | tr '\\0' x > large")
	for range 2 { // the second copy replaces the first
		do("cp", "one:/workspace/f", b.dir+"/f")
		do("cp", "one:/workspace/large", b.dir+"/large")
		do("cp", b.dir+"/large", "one:/workspace/in")
	}
	do("exec", "one", "-c", "cmp large in")
	if got := readFile(t, b.dir+"/f"); got != "kept\n" || len(readFile(t, b.dir+"/large")) != 1_000_000 {
		t.Errorf("copied %q", got)
	}
	do("rm", "one")
}

// TestRefusedSockets checks callers whose filter refuses AF_UNIX sockets: systemd's RestrictAddressFamilies and the shells of
// some agents. Runs keep their level, and a persistent sandbox keeps its files between commands.
func TestRefusedSockets(t *testing.T) {
	for _, refusal := range []string{"AF_UNIX=1", "AF_UNIX=97"} {
		b := newBox(t)
		demesne := b.refusing(refusal)
		do := func(args ...string) result { return b.finish(demesne(args...)) }
		level := b.parse(b.demesne("run", "--json", "--", "true")).Receipt.Level
		p := b.parse(do("run", "--json", "--", "sh", "-c", "echo hi; exit 3"))
		if p.ExitCode != 3 || p.Stdout != "hi\n" || p.Receipt.Level != level {
			t.Errorf("run: %+v", p)
		}
		if r := do("check"); !strings.Contains(r.stdout, "callers                degraded") || !strings.Contains(r.stdout, "refuses AF_UNIX sockets") || !fixes(r, "RestrictAddressFamilies=AF_UNIX") {
			t.Errorf("check: %+v", r)
		}
		if r := do("create", "--name", "one"); r.code != 0 {
			t.Fatalf("create: %+v", r)
		}
		// Each command has a runner of its own, and waits for the end of the one before.
		if r := do("exec", "one", "-c", "echo kept > f; sleep 1000 >/dev/null 2>&1 &"); r.code != 0 {
			t.Errorf("exec: %+v", r)
		}
		if r := do("exec", "one", "--", "cat", "f"); r.code != 0 || r.stdout != "kept\n" {
			t.Errorf("the file: %+v", r)
		}
		ends := make(chan result) // callers at the same time, each with a runner
		for range 4 {
			go func() { ends <- do("run", "--", "echo", "hi") }()
		}
		for range 4 {
			if r := <-ends; r.code != 0 || r.stdout != "hi\n" {
				t.Errorf("at once: %+v", r)
			}
		}
		// The loader of the filter sets no_new_privs, and an ordinary user has other ids without it.
		if r := b.finish(b.command(program(t, "setpriv"), "--no-new-privs", bin+"/demesne", "exec", "one", "--", "cat", "f")); r.code != 0 || r.stdout != "kept\n" {
			t.Errorf("exec without a filter: %+v", r)
		}
		if r := b.demesne("stop", "one"); r.code != 0 {
			t.Errorf("stop: %+v", r)
		}
		if r := do("rm", "one"); r.code != 0 {
			t.Errorf("rm: %+v", r)
		}
	}
}

// TestRefusedNetlink checks that sandboxes without a network keep their level where AF_NETLINK is refused, and that check names
// the reason for the others.
func TestRefusedNetlink(t *testing.T) {
	b := newBox(t)
	demesne := b.refusing("AF_NETLINK=97")
	p := b.parse(b.finish(demesne("run", "--json", "--", "sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1; python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(s.getsockname()); print(\"connected\")'")))
	if !strings.HasSuffix(p.Stdout, "lo\nconnected\n") || p.Receipt.Level == "minimal" || p.Receipt.Network != "none" {
		t.Errorf("run: %+v", p)
	}
	if r := b.finish(demesne("check")); !strings.Contains(r.stdout, "refuses AF_NETLINK sockets") || !fixes(r, "RestrictAddressFamilies=AF_NETLINK") {
		t.Errorf("check: %+v", r)
	}
}

// TestRefusedTProxy checks that check names the fallback without tproxy, which is no missing network.
func TestRefusedTProxy(t *testing.T) {
	b := newBox(t)
	r := b.finish(b.command(tools+"/nons", "--netfilter", bin+"/demesne", "check"))
	if !strings.Contains(r.stdout, "egress path            degraded  the named ports of allowed names") {
		t.Errorf("check: %+v", r)
	}
}

// TestRefusedShort checks that a machine without memory or processes for namespaces runs nothing in a weaker sandbox.
func TestRefusedShort(t *testing.T) {
	for refuse, text := range map[string]string{"unshare=12": "cannot allocate memory", "unshare=11": "resource temporarily unavailable"} {
		b := newBox(t)
		run := b.refusing(refuse)
		if r := b.finish(run("run", "--", "true")); r.code != 125 || !strings.Contains(r.stderr, text) {
			t.Errorf("%s: %+v", refuse, r)
		}
	}
}

// underProc starts the CLI with another /proc: the arguments of mount(8). The end of the pid namespace would kill the reaper.
func (b *box) underProc(t *testing.T, mount string) func(args ...string) *exec.Cmd {
	unshare := program(t, "unshare")
	flags := []string{"-rmpf"}
	if os.Getuid() == 0 {
		flags = []string{"-mpf"}
	}
	return func(args ...string) *exec.Cmd {
		return b.command(unshare, append(append(flags, "--mount-proc", "sh", "-c", "mount "+mount+` /proc || exit; "$0" "$@"; code=$?; while ls "$XDG_RUNTIME_DIR"/demesne/*.lock >/dev/null 2>&1; do sleep 0.02; done; exit $code`, bin+"/demesne"), args...)...)
	}
}

// TestRefusedProc checks a /proc with only processes (ProcSubset=pid of systemd), a read-only one, and none.
func TestRefusedProc(t *testing.T) {
	for mount, minimal := range map[string]bool{"-t proc -o subset=pid proc": false, "-o remount,bind,ro": true} {
		b := newBox(t)
		demesne := b.underProc(t, mount)
		p := b.parse(b.finish(demesne("run", "--json", "--", "sh", "-c", "echo hi; test -e /proc/self/status; exit 3")))
		if p.ExitCode != 3 || p.Stdout != "hi\n" || (p.Receipt.Level == "minimal") != minimal || minimal && !strings.Contains(p.reason("user-namespace"), "read-only") {
			t.Errorf("%s: %+v", mount, p)
		}
		if r := b.finish(demesne("check")); !strings.Contains(r.stdout, "demesne run has level") {
			t.Errorf("%s: check: %+v", mount, r)
		}
		if r := b.finish(demesne("run", "--memory", "64m", "--", "true")); r.code != 0 {
			t.Errorf("%s: limits: %+v", mount, r)
		}
	}
	b := newBox(t)
	none := b.underProc(t, "-t tmpfs none")
	r := b.finish(none("check"))
	if r.code != 1 || !strings.Contains(r.stdout, "/proc is not mounted here") || !strings.Contains(r.stdout, "fix: bwrap --proc /proc …") || !strings.Contains(r.stdout, "landlock  held") {
		t.Errorf("check without /proc: %+v", r)
	}
	if r := b.finish(none("run", "--", "true")); r.code != 125 || strings.Count(r.stderr, "\n") != 2 || !strings.Contains(r.stderr, "hint: bwrap --proc /proc") {
		t.Errorf("run without /proc: %+v", r)
	}
	// /proc/PID is another process there.
	outer := []string{"-rpf"}
	if os.Getuid() == 0 {
		outer = []string{"-pf"}
	}
	for _, args := range [][]string{{"check"}, {"run", "--", "true"}} {
		r := b.finish(b.command(program(t, "unshare"), slices.Concat(outer, []string{bin + "/demesne"}, args)...))
		if r.code == 0 || !strings.Contains(r.stdout+r.stderr, "/proc here is another pid namespace's") || !strings.Contains(r.stdout+r.stderr, ": bwrap --proc /proc") {
			t.Errorf("%q with another namespace's /proc: %+v", args, r)
		}
	}
}
