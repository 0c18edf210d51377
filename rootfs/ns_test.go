package rootfs

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// mounted makes a tree, and unmounts it at the end of the test.
func mounted(t testing.TB, l Layout) *Tree {
	t.Helper()
	if l.Dir == "" {
		l.Dir = nstest.Tmpfs(t)
	}
	tree, err := MountHost(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

// inside runs a command with the tree as its root, /dev in place.
func inside(t *testing.T, tree *Tree, argv ...string) (string, error) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/bin/sh", Args: append([]string{"sh", "-c", `exec "$@"`, "sh"}, argv...), Dir: "/tmp",
		Env:         []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root"},
		SysProcAttr: &syscall.SysProcAttr{Chroot: tree.Root}}
	out, err := cmd.CombinedOutput()
	runtime.KeepAlive(cmd)
	return string(out), err
}

// withDev binds the tree's /dev into its root, as the sandbox will have it, and the test's /proc.
func withDev(t *testing.T, tree *Tree) {
	t.Helper()
	if err := unix.Mount(tree.Dev, tree.Root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc", tree.Root+"/proc", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
}
