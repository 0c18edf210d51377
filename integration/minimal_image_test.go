package integration

import (
	"os"
	"strings"
	"testing"
)

// minimalGallery returns a gallery whose commands run at the level minimal, with the rights for copies of images.
func minimalGallery(t *testing.T) *gallery {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	g := newGallery(t)
	g.under = []string{tools + "/nons"}
	return g
}

// TestMinimalImages checks that an image is the root of a sandbox where nothing can be mounted: its user, variables,
// inputs, outputs and devices, what a session keeps, what the receipt says, and what is refused.
func TestMinimalImages(t *testing.T) {
	g := minimalGallery(t)
	ref, _ := g.simple("demo:1")
	out := g.mkdir("o")
	g.file("o/before", "before\n", 0o644)
	in := g.mkdir("tree/sub")
	g.file("tree/sub/data", "data\n", 0o644)
	os.Chown(g.dir+"/tree/sub/data", 1234, 1234)
	p := g.parse(g.demesne("run", "--json", "--image", ref, "--out", out, "--in", g.dir+"/tree", "--", "sh", "-c",
		`pwd; id -u; cat /in/tree/sub/data /out/before; echo made > /out/f; chmod 4755 /out/f; echo x > /dev/null; head -c 2 /dev/zero | wc -c; ls -A /proc; echo own > /bin/own; echo /*; touch w; ls /workspace`))
	if p.Stdout != "/workspace\n0\ndata\nbefore\n2\n/bin /dev /etc /home /in /out /proc /root /sys /tmp /usr /workspace\nw\n" || p.Receipt.Level != "minimal" {
		t.Errorf("%q, stderr %q, level %s: %s", p.Stdout, p.Stderr, p.Receipt.Level, p.Detail)
	}
	if st, err := os.Stat(out + "/f"); err != nil || readFile(t, out+"/f") != "made\n" || st.Mode()&os.ModeSetuid != 0 {
		t.Errorf("/out/f: %v, %v", st, err)
	}
	said := ""
	for _, l := range p.Receipt.Layers {
		if l.Name == "rootfs" {
			said = l.Status + ": " + l.Detail
		}
	}
	if !strings.HasPrefix(said, "degraded: 1 layers, copied to a directory that chroot(2) made the root; no /proc") {
		t.Errorf("receipt: %s", said)
	}
	id := strings.TrimSpace(g.demesne("create", "--image", ref).stdout)
	if r := g.demesne("exec", id, "-c", "echo kept > /etc/f; echo out > /out/o"); r.code != 0 {
		t.Errorf("exec: %+v", r)
	}
	g.demesne("stop", id)
	if r := g.demesne("exec", id, "--", "cat", "/etc/f", "/out/o"); r.stdout != "kept\nout\n" {
		t.Errorf("after a restart: %+v", r)
	}
	g.demesne("rm", id)
	for _, row := range [][]string{{"--workspace", in}, {"--mount", in}, {"--tmpfs", "/x"}, {"--require", "degraded"}} {
		r := g.demesne(append(append([]string{"run", "--image", ref}, row...), "--", "true")...)
		if r.code != 125 || !strings.Contains(r.stderr, "namespace") || !strings.Contains(r.stderr, "hint: ") {
			t.Errorf("%q: %+v", row, r)
		}
	}
	g.demesne("gc", "--all")
}

// TestMinimalImageRefused checks that the refusal names the rights that the copy of an image needs.
func TestMinimalImageRefused(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.under = []string{tools + "/nons"}
	if os.Getuid() == 0 {
		g.under = append([]string{program(t, "setpriv"), "--bounding-set=-sys_chroot,-mknod"}, g.under...)
	}
	r := g.demesne("run", "--image", ref, "--", "true")
	if r.code != 125 || !strings.Contains(r.stderr, "the copy of an image needs") || !strings.Contains(r.stderr, "CAP_SYS_CHROOT and CAP_MKNOD") {
		t.Errorf("%+v", r)
	}
	g.under = nil
}

// TestMinimalBuild checks that a build refuses a command where nothing can be mounted, with the reason and the fix.
func TestMinimalBuild(t *testing.T) {
	g := minimalGallery(t)
	ref, _ := g.simple("demo:1")
	g.file("context/Containerfile", "FROM "+ref+"\nRUN echo built > /f\n", 0o644)
	r := g.demesne("build", "-t", "local/made:1", g.dir+"/context")
	if r.code != 125 || !strings.Contains(r.stderr, "Containerfile:2: ") || !strings.Contains(r.stderr, `require "degraded": this machine gives "minimal"`) || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("%+v", r)
	}
	g.demesne("gc", "--all", "--build")
}

// TestEscapeF44MinimalChroot tries the ways out of a chroot: another one, a directory outside that is stdin, and the
// sandbox's first process. The command has no capability, the filter refuses chroot(2), and Landlock grants nothing outside.
func TestEscapeF44MinimalChroot(t *testing.T) {
	g := minimalGallery(t)
	ref, _ := g.simple("demo:1")
	attempts := strings.Fields(`chroot chroot_dots fchdir_outside openat_outside dots_outside list_outside link_outside make_outside rename_outside exec_outside
		root_init cwd_init exe_init mem_init mount bind pivot_root unshare_user unshare_mount setns open_tree move_mount open_by_handle_at
		socket_raw socketpair_alg pidfd_getfd_init vm_readv_init ptrace_init`)
	cmd := g.command("demesne", append([]string{"run", "-i", "--image", ref, "--in", tools + "/attempt", "--", "/in/attempt"}, attempts...)...)
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cmd.Stdin = root
	r := g.finish(cmd)
	if n := strings.Count(r.stdout, "\n"); n != len(attempts) || strings.Contains(r.stdout, " OK\n") || strings.Contains(r.stdout, " unknown\n") {
		t.Errorf("%d of %d attempts:\n%s%s", n, len(attempts), r.stdout, r.stderr)
	}
	for _, left := range []string{"/tmp/demesne-mark", "/tmp/demesne-moved"} {
		if _, err := os.Lstat(left); err == nil {
			t.Errorf("it made %s", left)
			os.RemoveAll(left)
		}
	}
	p := g.parse(g.demesne("run", "--json", "--image", ref, "--", "sh", "-c", `ln -s /etc /out/etc; rm -r /out; ln -s ../../../../../../etc /out`))
	if own, _ := os.ReadFile("/etc/passwd"); p.ExitCode != 125 && readFile(t, p.Out+"/passwd") == string(own) {
		t.Errorf("/out became a link to the machine's /etc: exit %d, %s; %q", p.ExitCode, p.Detail, names(p.Out))
	}
	g.demesne("gc", "--all")
}
