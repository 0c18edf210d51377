package rootfs

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// TestShow starts a process with mounts of its own before the tree exists. The tree must appear there, whole and
// locked, and so must later mounts in it. All of it must stay when the tree is detached.
func TestShow(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	out, work := t.TempDir(), t.TempDir()
	for _, d := range []string{out, work} {
		if err := os.WriteFile(filepath.Join(d, "f"), []byte(d), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, dev := places(t)
	tree := mounted(t, Layout{Size: 1 << 20})
	pid := elsewhere(t, filepath.Dir(root))
	if err := tree.Show(root, dev); err != nil {
		t.Fatal(err)
	}
	there := func(argv ...string) (string, error) {
		enter := []string{"--user", "--mount", "--preserve-credentials", "--target", strconv.Itoa(pid)}
		text, err := exec.Command("nsenter", append(enter, argv...)...).CombinedOutput()
		return string(text), err
	}
	for _, at := range []string{root + "/usr", root + "/in", dev + "/pts"} {
		text, err := there("umount", at)
		if err == nil {
			t.Errorf("%q can be unmounted", at)
		} else if !strings.Contains(text, at) {
			t.Errorf("unmount %q: %s", at, text)
		}
	}
	own := t.TempDir() // instead of a new root
	if text, err := there("mount", "--rbind", root, own); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	seen := func(name string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s/%s", pid, own, name))
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	if got := seen("out/f"); !strings.Contains(got, "no such file") {
		t.Errorf("before: %q", got)
	}
	if err := tree.Complete(Source{Path: out}, Source{Path: work}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"lent", "detached"} {
		if got := seen("out/f"); got != out {
			t.Errorf("%s: /out/f is %q", when, got)
		}
		if got := seen("workspace/f"); got != work {
			t.Errorf("%s: /workspace/f is %q", when, got)
		}
		if err := tree.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, own+"/out ") && !strings.Contains(line, "nosuid,nodev") {
			t.Errorf("of /out: %s", line)
		}
	}
}

// places returns two directories on a shared mount.
func places(t *testing.T) (root, dev string) {
	t.Helper()
	at := t.TempDir()
	if err := unix.Mount("places", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	if err := unix.Mount("", at, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	root, dev = filepath.Join(at, "root"), filepath.Join(at, "dev")
	for _, dir := range []string{root, dev} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, dev
}

// elsewhere starts a process in dir, in a user and a mount namespace of its own, until the end of the test.
func elsewhere(t *testing.T, dir string) int {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	echo, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	// The answer proves that the child has called execve, and not only been forked.
	if _, err := io.WriteString(in, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(echo, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestCompleteRefused(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	root, dev := places(t)
	tree := mounted(t, Layout{Size: 1 << 20})
	if err := tree.Show(root, dev); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, dir + "/none"} {
		if err := tree.Complete(Source{Path: path}, Source{}); err == nil {
			t.Errorf("%q is lent", path)
		}
	}
	if err := tree.Complete(Source{}, Source{}); err != nil {
		t.Errorf("nothing to lend: %v", err)
	}
}
