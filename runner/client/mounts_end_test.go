package client

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

// suids makes set-user-ID files in a mount, also below directories that are mounted over themselves.
func suids(dir string) string {
	return "cd " + dir + "; for d in . .git sub/deep; do cp /usr/bin/true $d/suid; chown 12:12 $d/suid 2>/dev/null; chmod 4755 $d/suid; done; "
}

// checkSuids checks that the files of suids belong to the caller and grant no rights.
func checkSuids(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{".", ".git", "sub/deep"} {
		fi, err := os.Stat(filepath.Join(dir, d, "suid"))
		if err != nil || fi.Mode()&os.ModeSetuid != 0 || owner(fi) != os.Geteuid() {
			t.Errorf("%s/suid: %+v, %v", d, fi, err)
		}
	}
}

// privateRepository is a repository that other users cannot reach, so that set-user-ID files are possible in it, and
// the spec of a sandbox with it.
func (c corner) privateRepository(t *testing.T) (string, runner.Spec) {
	dir, mounts := c.repository()
	os.Chmod(dir, 0o700)
	out := c.tree()
	os.Chmod(out, 0o700)
	return dir, runner.Spec{Image: "dir", Rootfs: &runner.Rootfs{Dir: imageDir(t, c)}, Mounts: mounts, Out: out}
}

// TestEscapeF22Mounts: at the end, what an image's uid 0 wrote in a mount belongs to the caller and grants no rights,
// also if the runner was killed (F22).
func TestEscapeF22Mounts(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	dir, spec := c.privateRepository(t)
	s, err := c.oneShot(client, spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := c.sh(s, suids(dir)+"ls -l suid"); !strings.HasPrefix(got, "-rws") {
		t.Errorf("made %s", got)
	}
	checkSuids(t, dir)
	dir, spec = c.privateRepository(t)
	spec.Lifetime = runner.Persistent
	if s, err = client.Create(context.Background(), spec); err != nil {
		t.Fatal(err)
	}
	c.sh(s, suids(dir))
	if fi, err := os.Stat(dir + "/suid"); err != nil || fi.Mode()&os.ModeSetuid == 0 {
		t.Errorf("nothing to take back: %v, %v", fi, err)
	}
	c.kill(client)
	c.eventually("the reaper to end", func() bool { _, err := os.Lstat(c.lock()); return err != nil })
	checkSuids(t, dir)
}

// TestMountsDisk: what is written in a mount counts, also below a directory that is mounted over itself.
func TestMountsDisk(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	dir, mounts := c.repository()
	s := c.create(client, runner.Spec{Name: "d", Mounts: mounts[1:], Limits: runner.Limits{Disk: 10 << 20}})
	// No single file can be longer than the limit (RLIMIT_FSIZE), so only several can exceed it.
	_, r := c.sh(s, "for i in 1 2 3; do head -c 6000000 /dev/urandom > "+dir+"/sub/deep/big$i; done; sync; sleep 120")
	if r.Reason != runner.DiskFull || !strings.Contains(r.Detail, dir) {
		t.Errorf("%s: %s", r.Reason, r.Detail)
	}
}

// TestMountsKey: the same key with other mounts is another request.
func TestMountsKey(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	a, b := c.tree(), c.tree()
	first := runner.Spec{Key: "k", Mounts: []runner.Mount{{Source: a, Target: "/a"}, {Source: b, Target: "/a/../b"}}[:1]}
	s := c.create(client, first)
	first.Out = ""
	if again := c.create(client, first); again.ID != s.ID || !again.Existing {
		t.Errorf("%+v", again)
	}
	for _, mounts := range [][]runner.Mount{
		{{Source: a, Target: "/a", ReadOnly: true}}, {{Source: b, Target: "/a"}}, {{Source: a, Target: "/b"}}, {{Source: a, Target: "/a"}, {Source: b, Target: "/b"}},
	} {
		_, err := client.Create(context.Background(), runner.Spec{Key: "k", Lifetime: runner.Persistent, Out: c.tree(), Mounts: mounts})
		if code(err) != ipc.CodeDiffers || !strings.Contains(err.Error(), "mounts") {
			t.Errorf("%v: %v", mounts, err)
		}
	}
}

// nonsVar marks the process of a test that runs where the machine forbids namespaces.
const nonsVar = "DEMESNE_TEST_NONS"

// TestMountsMinimal: without namespaces, Landlock permits the sources at their own paths, and a read-only mount inside
// a writable one is refused.
func TestMountsMinimal(t *testing.T) {
	if os.Getenv(nonsVar) == "" {
		withoutNamespaces(t)
		return
	}
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	w, ro, hidden := c.tree("f"), c.tree("f"), c.tree("f")
	mounts := []runner.Mount{{Source: w, Target: w}, {Source: ro, Target: ro, ReadOnly: true}}
	s, err := c.oneShot(client, runner.Spec{Mounts: mounts})
	if err != nil {
		t.Fatal(err)
	}
	if s.Level != runner.LevelMinimal {
		t.Fatalf("level %s", s.Level)
	}
	got, _ := c.sh(s, "cd "+w+"; cat f "+ro+"/f; (cat "+hidden+"/f) 2>/dev/null; echo x > new; (echo x > "+ro+"/f) 2>/dev/null; cat new "+ro+"/f")
	if got != "host\nhost\nx\nhost" {
		t.Errorf("%q", got)
	}
	for _, m := range []runner.Mount{{Source: w + "/f", Target: w + "/f", ReadOnly: true}, {Source: ro, Target: "/elsewhere", ReadOnly: true}} {
		if _, err := c.oneShot(client, runner.Spec{Mounts: append(mounts, m)}); code(err) != ipc.CodeRequirement {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// withoutNamespaces runs the calling test again under a filter that forbids namespaces.
func withoutNamespaces(t *testing.T) {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "nons")
	if out, err := exec.Command("gcc", "-w", "-static", "-o", tool, "../../integration/testdata/c/nons.c").CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	cmd := exec.Command(tool, "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[1] = self
	cmd.Env = append(os.Environ(), nonsVar+"=1", "CI=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
