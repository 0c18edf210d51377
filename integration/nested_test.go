package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNestedThreeLevels runs demesne at three levels. Each level creates its sandbox with the privileges that the
// level above leaves.
func TestNestedThreeLevels(t *testing.T) {
	b := newBox(t)
	inner := []string{"/in/bin/demesne", "run", "--nesting", "--in", "/in/bin", "--"}
	args := append([]string{"run", "--nesting", "--in", bin + ":bin", "--"}, inner...)
	args = append(args, inner...)
	args = append(args, "sh", "-c", "echo level three; grep -c . /proc/self/uid_map; grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status | tr -s '\\t ' ' '; ls /in")
	r := b.demesne(args...)
	if r.code != 0 || !strings.HasPrefix(r.stdout, "level three\n") || !strings.HasSuffix(r.stdout, "\nNoNewPrivs: 1\nSeccomp: 2\nbin\n") {
		t.Errorf("three levels: %+v", r)
	}
}

// TestNestedReceipt checks that the innermost sandbox is no weaker for being nested, according to its own
// receipt.
func TestNestedReceipt(t *testing.T) {
	b := newBox(t)
	r := b.demesne("run", "--nesting", "--in", bin+":bin", "--", "/in/bin/demesne", "run", "--json", "--", "sh", "-c", "id -u; touch /usr/x 2>/dev/null || echo read-only")
	p := b.parse(r)
	if p.ExitCode != 0 || p.Stdout != "0\nread-only\n" || p.Receipt.Landlock == 0 || p.Receipt.Level == "minimal" {
		t.Errorf("nested: %+v", p)
	}
}

// TestNestedNotAllowed checks that without --nesting an inner demesne has the minimal level, for runs and sessions, and
// fails with one line if its caller requires more.
func TestNestedNotAllowed(t *testing.T) {
	b := newBox(t)
	r := b.demesne("run", "--in", bin+":bin", "--", "sh", "-ec", `d=/in/bin/demesne
		$d run --out /tmp/o -- sh -c 'echo inner > "$DEMESNE_OUT/f"; touch /root/x 2>/dev/null && echo wrote; head -c 1 /proc/1/environ 2>/dev/null; true'
		cat /tmp/o/f; $d create --name one >/dev/null; $d exec one -- echo there; $d rm one`)
	if r.code != 0 || r.stdout != "inner\nthere\n" {
		t.Errorf("the minimal level inside: %+v", r)
	}
	r = b.demesne("run", "--in", bin+":bin", "--", "/in/bin/demesne", "run", "--require", "degraded", "--", "true")
	if r.code != 125 || !strings.HasPrefix(r.stderr, "demesne: run: ") {
		t.Errorf("inside a sandbox without --nesting: %+v", r)
	}
}

func TestNestedInBubblewrap(t *testing.T) {
	b := newBox(t)
	bwrap := program(t, "bwrap")
	for _, uid := range []string{"0", "1234"} {
		t.Run("uid "+uid, func(t *testing.T) {
			r := b.finish(b.command(bwrap, "--unshare-all", "--uid", uid, "--gid", uid, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", bin, bin,
				"--setenv", "HOME", "/tmp", "--setenv", "XDG_RUNTIME_DIR", "/tmp", "--chdir", "/tmp", bin+"/demesne", "run", "--json", "--", "sh", "-c", `id -u; echo x > "$DEMESNE_OUT/f"; touch /usr/x 2>/dev/null || echo read-only`))
			if r.code != 0 || !strings.HasPrefix(r.stdout, "{") {
				t.Fatalf("in bwrap: %+v", r)
			}
			p := b.parse(r)
			// bwrap takes CAP_SETFCAP from uid 0, which then cannot map itself again.
			if p.Receipt.Level == "minimal" && uid != "0" || !strings.HasSuffix(p.Stdout, "read-only\n") {
				t.Errorf("in bwrap: %+v\n%s", p, r.stderr)
			}
		})
	}
}

// TestNestedInPodman runs demesne in podman with its default profile: seccomp, masked /proc, no CAP_SYS_ADMIN.
// Podman is rootless for an ordinary user, and the system's for root.
func TestNestedInPodman(t *testing.T) {
	b := newBox(t)
	podman := b.podman(t)
	for _, user := range []string{"0:0", "1000:1000"} {
		t.Run("user "+user, func(t *testing.T) {
			r := b.finish(podman("--user", user, "--env", "HOME=/tmp/home-"+user[:1], "--workdir", "/tmp", "--rootfs", b.containerRoot(), "/demesne/demesne", "run", "--json", "--",
				"sh", "-c", `id -u; echo x > "$DEMESNE_OUT/f"; touch /usr/x 2>/dev/null || echo read-only`))
			if r.code != 0 || !strings.HasPrefix(r.stdout, "{") {
				t.Fatalf("in podman: %+v", r)
			}
			p := b.parse(r)
			if p.Stdout != "0\nread-only\n" {
				t.Errorf("in podman: %+v\n%s", p, r.stderr)
			}
			t.Logf("level %s", p.Receipt.Level)
		})
	}
}

// TestNestedBombInPodman starts more processes than a sandbox in podman may have. The run ends, or is refused the next process,
// and the receipt says held only if no process more was there: the kernel exempts uid 0 of a rootful container from
// RLIMIT_NPROC. The container goes on.
func TestNestedBombInPodman(t *testing.T) {
	b := newBox(t)
	bomb := "i=0; while [ $i -lt 2000 ]; do sleep 3222 & i=$((i+1)); echo $i; done; echo all"
	r := b.finish(b.podman(t)("--env", "HOME=/tmp/home", "--workdir", "/tmp", "--rootfs", b.containerRoot(), "/bin/sh", "-c",
		`/demesne/demesne run --json --pids 40 --timeout 4m -- sh -c "$0"; /demesne/demesne run -- echo next >&2; sleep 0 & wait $! && echo forks >&2`, bomb))
	if r.code != 0 || !strings.HasSuffix(r.stderr, "next\nforks\n") {
		t.Fatalf("in podman: %+v", r)
	}
	p := b.parse(r)
	counted := strings.Fields(p.Stdout)
	refused := strings.Contains(p.Stderr, "fork")
	if len(counted) == 0 || len(counted) >= 2000 || p.Reason != "pids" && !refused {
		t.Errorf("%d processes, reason %q: %s\n%s", len(counted), p.Reason, p.Detail, p.Stderr)
	}
	for _, l := range p.Receipt.Limits {
		if l.Name != "pids" {
			continue
		}
		t.Logf("level %s, %d processes, reason %q, %+v", p.Receipt.Level, len(counted), p.Reason, l)
		if l.Status != "degraded" && (l.Status != "held" || len(counted) > 40+16) { // 16 are for the threads of PID 1
			t.Errorf("%d processes: %+v", len(counted), l)
		}
	}
}

// TestNestedPodmanInside runs rootless podman in a sandbox as the README describes: with one id, and the
// sandbox's network and terminals.
func TestNestedPodmanInside(t *testing.T) {
	b := newBox(t)
	program(t, "podman")
	program(t, "crun")
	tree := b.mkdir("tree/bin")
	for _, name := range []string{"busybox", "sh"} {
		if err := os.Link(program(t, "busybox"), tree+"/"+name); err != nil {
			shell, err := os.ReadFile(program(t, "busybox"))
			if err != nil {
				t.Fatal(err)
			}
			b.file("tree/bin/"+name, string(shell), 0o755)
		}
	}
	if r := b.finish(b.command(program(t, "tar"), "-C", b.dir+"/tree", "--owner=33", "--group=33", "-cf", b.dir+"/tree.tar", ".")); r.code != 0 {
		t.Fatalf("tar: %+v", r)
	}
	r := b.demesne("run", "--nesting", "--in", b.dir+"/tree.tar", "--memory", "1g", "--", "unshare", "-UrmC", "sh", "-c", `
mount -t cgroup2 none /sys/fs/cgroup; mkdir -p ~/.config/containers
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > ~/.config/containers/policy.json
podman() { command podman --log-level error --runtime crun --storage-driver vfs --storage-opt vfs.ignore_chown_errors=true --cgroup-manager cgroupfs --events-backend file "$@"; }
podman import -q /in/tree.tar inner > /dev/null
podman run --rm --cgroups=disabled --network host -v /dev/pts:/dev/pts inner busybox sh -c 'echo $$; busybox id -u; busybox ls /sys/class/net'`)
	if r.code != 0 || r.stdout != "1\n0\nlo\n" {
		t.Errorf("podman in a sandbox: %+v", r)
	}
}

// podman finds a way to run podman offline on this machine. crun needs cgroup v1 or v2, not both, and runc needs
// to manage cgroups.
func (b *box) podman(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	path := program(t, "podman")
	// Podman's own state, which the leak check does not cover.
	home := b.mkdir("podman")
	env := []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + b.mkdir("podman/run")}
	os.Chmod(b.dir+"/podman/run", 0o700)
	t.Cleanup(func() {
		if os.Getuid() != 0 {
			cmd := b.command(path, "unshare", "rm", "-rf", home, b.dir+"/rootfs/tmp")
			cmd.Env = append(cmd.Env, env...)
			cmd.Run()
		}
		for _, p := range descendants() {
			if strings.HasPrefix(p.name, "podman") || p.name == "catatonit" || p.name == "conmon" {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	})
	make := func(way []string) func(args ...string) *exec.Cmd {
		return func(args ...string) *exec.Cmd {
			all := append(append([]string{}, way...), "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "-v", "/usr:/usr:ro", "-v", bin+":/demesne:ro")
			cmd := b.command(path, append(all, args...)...)
			cmd.Env = append(cmd.Env, env...)
			return cmd
		}
	}
	storage := []string{"--log-level=error", "--root", home + "/root", "--runroot", home + "/runroot", "--storage-driver", "vfs"}
	var errs []string
	for _, way := range [][]string{
		{"run", "--cgroups=disabled"},
		{"--runtime=runc", "--cgroup-manager=cgroupfs", "run"},
		{"--runtime=crun", "--cgroup-manager=cgroupfs", "run"},
	} {
		podman := make(append(append([]string{}, storage...), way...))
		r := b.finish(podman("--rootfs", b.containerRoot(), "/bin/true"))
		if r.code == 0 {
			return podman
		}
		errs = append(errs, r.stderr)
	}
	need(t, false, "a podman that can run a container ("+strings.Join(errs, "; ")+")")
	return nil
}

// containerRoot creates a root file system based on the host's /usr.
func (b *box) containerRoot() string {
	b.Helper()
	root := filepath.Join(b.dir, "rootfs")
	for _, d := range []string{"usr", "etc", "tmp", "proc", "sys", "dev", "run", "var/tmp", "root", "demesne"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	os.Chmod(root+"/tmp", 0o1777|os.ModeSticky)
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		os.Symlink("usr/"+d, filepath.Join(root, d))
	}
	os.WriteFile(root+"/etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644)
	if raw, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		os.WriteFile(root+"/etc/ld.so.cache", raw, 0o644)
	}
	return root
}
