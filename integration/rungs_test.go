package integration

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Tests of fallback levels. Each weaker level must be reported, have bounds, and be refusable.

// single returns a function that starts the CLI as a caller with one id. That is a user without subordinate ids,
// or a user for whom newuidmap cannot work.
func (b *box) single(t *testing.T) func(args ...string) *exec.Cmd {
	if os.Getuid() == 0 {
		b.as(54321)
		return func(args ...string) *exec.Cmd { return b.command("demesne", args...) }
	}
	setpriv := program(t, "setpriv")
	return func(args ...string) *exec.Cmd {
		return b.command(setpriv, append([]string{"--no-new-privs", bin + "/demesne"}, args...)...)
	}
}

// underMaskedProc starts programs with mounts over parts of /proc.
func (b *box) underMaskedProc(t *testing.T) func(args ...string) *exec.Cmd {
	unshare := program(t, "unshare")
	flags := []string{"-m"}
	if os.Getuid() != 0 {
		flags = []string{"-rm"}
	}
	const mask = `for f in kcore keys timer_list interrupts; do test ! -e /proc/$f || mount --bind /dev/null /proc/$f || exit 1; done; exec "$0" "$@"`
	return func(args ...string) *exec.Cmd {
		return b.command(unshare, append(append(flags, "sh", "-c", mask, bin+"/demesne"), args...)...)
	}
}

// underCorePattern starts programs that see the given core_pattern.
func (b *box) underCorePattern(t *testing.T, pattern string) func(args ...string) *exec.Cmd {
	unshare := program(t, "unshare")
	flags := []string{"-m"}
	if os.Getuid() != 0 {
		flags = []string{"-rm"}
	}
	file := b.file("core_pattern", pattern+"\n", 0o644)
	const mount = `mount --bind "$0" /proc/sys/kernel/core_pattern && exec "$@"`
	return func(args ...string) *exec.Cmd {
		return b.command(unshare, append(append(flags, "sh", "-c", mount, file, bin+"/demesne"), args...)...)
	}
}

// TestRungCoreSocket checks that the receipt reports a core_pattern that names a socket, because no limit stops
// such core dumps (P23). All other patterns are stopped.
func TestRungCoreSocket(t *testing.T) {
	for pattern, want := range map[string]string{"@/run/cores": "missing", "@@/run/cores": "missing", "|/bin/false %p": "held", "core": "held"} {
		b := newBox(t)
		run := b.underCorePattern(t, pattern)
		p, got := b.parse(b.finish(run("run", "--json", "--", "true"))), ""
		for _, l := range p.Receipt.Layers {
			if l.Name == "core-dumps" {
				got = l.Status
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q, in %+v", pattern, got, want, p.Receipt.Layers)
		}
		if r := b.finish(run("run", "--require", "full", "--", "true")); want == "missing" && (r.code != 125 || !strings.Contains(r.stderr, "core-dumps")) {
			t.Errorf("%s: --require full: %+v", pattern, r)
		}
	}
}

// withoutNamespaces starts programs under a seccomp filter like Docker's.
func (b *box) withoutNamespaces(t *testing.T) func(args ...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		return b.command(tools+"/nons", append([]string{bin + "/demesne"}, args...)...)
	}
}

func TestRungSingleID(t *testing.T) {
	b := newBox(t)
	demesne := b.single(t)
	p := b.parse(b.finish(demesne("run", "--json", "--", "sh", "-c", "id -u; touch /out/mine; chmod 4755 /out/mine; grep NoNewPrivs /proc/self/status")))
	if len(p.Receipt.UIDMap) != 1 || p.Receipt.UIDMap[0].Size != 1 || p.Receipt.Level == "full" && len(p.Receipt.Layers) == 0 {
		t.Errorf("receipt: %+v", p.Receipt)
	}
	if p.ExitCode != 0 || !strings.HasPrefix(p.Stdout, "0\n") {
		t.Errorf("ran: %+v", p)
	}
	said := false
	for _, l := range p.Receipt.Layers {
		said = said || l.Status != "held" && l.Why != ""
	}
	if !said {
		t.Errorf("no layer says that there is one id: %+v", p.Receipt.Layers)
	}
	if st, err := os.Stat(p.Out + "/mine"); err != nil || st.Mode()&os.ModeSetuid != 0 {
		t.Errorf("/out/mine: %v %v", st, err)
	}
	r := b.finish(demesne("run", "--require", "full", "--", "true"))
	if r.code != 125 || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("--require full: %+v", r)
	}
}

// TestRungNoControlGroup checks that without control groups the limits are enforced by other means, which the
// receipt names.
func TestRungNoControlGroup(t *testing.T) {
	b := newBox(t)
	demesne := b.single(t)
	p := b.parse(b.finish(demesne("run", "--json", "--memory", "128m", "--pids", "50", "--timeout", "60s", "--in", tools+"/eat", "--", "/in/eat", "many")))
	if p.Reason != "oom" || p.ExitCode != 137 {
		t.Errorf("memory bomb: reason %q, exit %d, %s; limits %+v", p.Reason, p.ExitCode, p.Detail, p.Receipt.Limits)
	}
	held(t, p, "memory")
	held(t, p, "pids")
	p = b.parse(b.finish(demesne("run", "--json", "--pids", "50", "--in", tools+"/threads", "--", "/in/threads")))
	if n := strings.TrimSpace(p.Stdout); len(n) > 2 || n == "" {
		t.Errorf("%q threads with --pids 50: %+v", n, p.Receipt.Limits)
	}
}

// TestRungProcNotMountable checks a /proc with mounts over parts of it, which is the default in rootless podman.
// The kernel refuses a new mount of /proc then (mount_too_revealing). demesne binds the existing one, and still
// masks it.
func TestRungProcNotMountable(t *testing.T) {
	b := newBox(t)
	demesne := b.underMaskedProc(t)
	masked := func(args ...string) result { return b.finish(demesne(args...)) }
	p := b.parse(masked("run", "--json", "--", "sh", "-c", `echo $((6*7)); for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do (echo x > $f) 2>/dev/null && echo "writable $f"; done; true`))
	if p.Stdout != "42\n" || p.Receipt.Level == "full" {
		t.Errorf("%q, level %s", p.Stdout, p.Receipt.Level)
	}
	found := false
	for _, l := range p.Receipt.Layers {
		found = found || strings.Contains(l.Name, "proc") && l.Status != "held" && l.Why != ""
	}
	if !found {
		t.Errorf("no layer says what /proc is: %+v", p.Receipt.Layers)
	}
	if r := masked("run", "--require", "full", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("--require full: %+v", r)
	}
}

// TestRungNoNamespaces checks that without namespaces (Docker's default profile) Landlock and seccomp still
// apply, and that the receipt claims only these.
func TestRungNoNamespaces(t *testing.T) {
	b := newBox(t)
	secret := b.file("h/keep/secret", canary, 0o600)
	defer os.RemoveAll(b.home + "/keep")
	demesne := b.withoutNamespaces(t)
	nons := func(args ...string) result { return b.finish(demesne(args...)) }
	out := b.mkdir("o")
	p := b.parse(nons("run", "--json", "--out", out, "--in", b.file("data", "data\n", 0o644), "--", "sh", "-c", `cat "$DEMESNE_IN/data" /in/data 2>/dev/null | head -1
		for f in `+secret+` /etc/shadow /root/.profile; do head -c 5 $f 2>/dev/null; done
		for d in `+b.home+` /etc /usr /var/tmp; do touch $d/demesne-mark 2>/dev/null && echo "wrote $d"; done
		perl -MSocket -e 'socket(S, AF_INET, SOCK_STREAM, 0) and print "inet\n"'; unshare -U true 2>/dev/null && echo unshared
		setsid sleep 3222 & echo x > "${DEMESNE_OUT:-/out}/f"; echo end`))
	if p.Stdout != "data\nend\n" || p.Receipt.Level != "minimal" {
		t.Errorf("%q, stderr %q, level %s: %s", p.Stdout, p.Stderr, p.Receipt.Level, p.Detail)
	}
	if text, _ := os.ReadFile(out + "/f"); string(text) != "x\n" {
		t.Errorf("/out/f = %q", text)
	}
	if p.Receipt.Landlock == 0 || len(p.Receipt.Seccomp) != 64 {
		t.Errorf("receipt: %+v", p.Receipt)
	}
	for _, level := range []string{"full", "degraded"} {
		if r := nons("run", "--require", level, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "hint: ") {
			t.Errorf("--require %s: %+v", level, r)
		}
	}
	if l, err := net.Listen("unix", b.dir+"/s"); err != nil {
		t.Fatal(err)
	} else if r := nons("run", "--socket", b.dir+"/s", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "forbids namespaces") {
		t.Errorf("--socket: %+v, %v", r, l.Close())
	}
	if r := nons("run", "--", "sh", "-c", "exit 7"); r.code != 7 {
		t.Errorf("exit code: %+v", r)
	}
}

// TestRungNoHostname checks that the outer host name remains where it cannot be set (rootless podman's default
// profile).
func TestRungNoHostname(t *testing.T) {
	b := newBox(t)
	run := func(args ...string) result {
		return b.finish(b.command(tools+"/nons", append([]string{"--hostname", bin + "/demesne"}, args...)...))
	}
	host, _ := os.Hostname()
	p := b.parse(run("run", "--json", "--", "cat", "/proc/sys/kernel/hostname"))
	if p.Stdout != host+"\n" || p.Receipt.Level != "degraded" {
		t.Errorf("hostname %q, level %s", p.Stdout, p.Receipt.Level)
	}
	said := false
	for _, l := range p.Receipt.Layers {
		said = said || l.Name == "hostname" && l.Status == "degraded" && l.Why != ""
	}
	if !said {
		t.Errorf("layers: %+v", p.Receipt.Layers)
	}
	if r := run("run", "--require", "full", "--", "true"); r.code != 125 {
		t.Errorf("--require full: %+v", r)
	}
}

// TestRungEscapes checks that each fallback level refuses the same attempts as the strongest one. Other processes
// of the same user are out of reach even where they are visible.
func TestRungEscapes(t *testing.T) {
	names := strings.Fields(`unshare_user unshare_mount unshare_net clone_user clone_user_high clone3_user setns mount bind umount_proc pivot_root chroot
		open_tree move_mount fsopen fspick mount_setattr io_uring_setup add_key keyctl request_key ptrace_init vm_readv_init pidfd_getfd_init mem_init environ_init
		root_init cwd_init bpf perf_event_open userfaultfd kexec_load open_by_handle_at quotactl swapon init_module reboot syslog settimeofday acct mknod_char
		mknod_block socket_raw socket_packet socket_packet_high socket_alg socket_vsock socket_netfilter socketpair_alg int80_getpid x32_getpid`)
	for _, rung := range []struct {
		name string
		way  func(*box, *testing.T) func(...string) *exec.Cmd
	}{{"single-id", (*box).single}, {"masked proc", (*box).underMaskedProc}, {"no namespaces", (*box).withoutNamespaces}} {
		t.Run(rung.name, func(t *testing.T) {
			b := newBox(t)
			demesne := rung.way(b, t)
			r := b.finish(demesne(append([]string{"run", "--in", tools + "/attempt", "--", "sh", "-c", `exec "$DEMESNE_IN/attempt" "$@"`, "sh"}, names...)...))
			if n := strings.Count(r.stdout, "\n"); n != len(names) || strings.Contains(r.stdout, " OK\n") || strings.Contains(r.stdout, " unknown\n") {
				t.Errorf("%d of %d attempts:\n%s%s", n, len(names), r.stdout, r.stderr)
			}
			innocent := b.command("/bin/sleep", "3333")
			if err := innocent.Start(); err != nil {
				t.Fatal(err)
			}
			pid := strconv.Itoa(innocent.Process.Pid)
			r = b.finish(demesne("run", "--", "sh", "-c", `p=$1; kill -9 $p 2>/dev/null && echo killed $p; kill -9 -$p 2>/dev/null && echo killed group
				prlimit --pid $p --nofile=64:64 2>/dev/null && echo limited; renice -n 1 -p $p >/dev/null 2>&1 && echo reniced; taskset -p 1 $p >/dev/null 2>&1 && echo moved
				for f in environ maps mem fd/0 root/etc/shadow cwd/. exe; do head -c 1 /proc/$p/$f 2>/dev/null | grep -q . && echo "read $f"; done
				for f in /proc/[0-9]*/environ; do tr '\0' '\n' < $f 2>/dev/null | grep '^DEMESNE_TEST_SECRET='; done; true`, "sh", pid))
			if r.code != 0 || r.stdout != "" {
				t.Errorf("another process of the same user: %+v", r)
			}
			if err := innocent.Process.Signal(syscall.Signal(0)); err != nil {
				t.Error("it is gone")
			}
			innocent.Process.Kill()
			innocent.Wait()
		})
	}
}

// TestRungHalfMapped checks that a sandbox gets a user namespace with one id where only one of newuidmap and newgidmap works:
// the other's map cannot be written a second time.
func TestRungHalfMapped(t *testing.T) {
	for _, works := range []string{"newuidmap", "newgidmap"} {
		for _, other := range []string{"missing", "fails"} {
			t.Run(works+", the other "+other, func(t *testing.T) {
				g := newGallery(t)
				g.subordinate(t)
				dir := g.mkdir("programs")
				if err := os.Symlink(program(t, works), dir+"/"+works); err != nil {
					t.Fatal(err)
				}
				if other == "fails" {
					name := map[string]string{"newuidmap": "newgidmap", "newgidmap": "newuidmap"}[works]
					g.file("programs/"+name, "#!/bin/sh\nexit 1\n", 0o755)
				}
				g.extra = append(g.extra, "PATH="+dir+":/nowhere")
				p, r := g.report(nil, "/bin/cat", "/proc/self/uid_map")
				if m := p.Receipt.UIDMap; r.code != 0 || p.Receipt.Level == "minimal" || len(m) != 1 || m[0].Size != 1 {
					t.Errorf("exit %d, level %q, ids %v: %s", r.code, p.Receipt.Level, m, r.stderr)
				}
			})
		}
	}
}
