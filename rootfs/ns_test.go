package rootfs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// nsVar tells a test binary that it runs as uid 0 of a user namespace, and how many ids it has.
const nsVar = "DEMESNE_TEST_IDS"

// inUserns runs the rest of the calling test as uid 0 of a new user namespace with its own mounts,
// network and IPC. It returns false where the test only started that: then the caller returns.
// As real root the test runs twice: with 65536 ids, and with one.
func inUserns(t *testing.T) bool {
	t.Helper()
	if os.Getenv(nsVar) != "" {
		return true
	}
	for _, ids := range idMaps() {
		t.Run(fmt.Sprintf("ids=%d", ids.Size), func(t *testing.T) {
			cmd := usernsCommand(ids)
			cmd.Args = append(cmd.Args, "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v", "-test.timeout=2m")
			out, err := cmd.CombinedOutput()
			if err != nil {
				requireUserns(t, err)
				t.Fatalf("%v\n%s", err, out)
			}
			if !bytes.Contains(out, []byte("--- PASS")) && bytes.Contains(out, []byte("--- SKIP")) {
				t.Skipf("%s", out)
			}
			if testing.Verbose() {
				t.Logf("%s", out)
			}
		})
	}
	return false
}

func idMaps() []syscall.SysProcIDMap {
	if os.Geteuid() != 0 {
		return []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	}
	return []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}, {HostID: 100000, Size: 1}}
}

// usernsCommand runs this test binary again. It goes by /proc/self/exe: the ids it will have may
// not reach the directory that go test built it in.
func usernsCommand(ids syscall.SysProcIDMap) *exec.Cmd {
	gids := ids
	if os.Geteuid() != 0 {
		gids.HostID = os.Getegid()
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", nsVar, ids.Size), "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		UidMappings:                []syscall.SysProcIDMap{ids},
		GidMappings:                []syscall.SysProcIDMap{gids},
		GidMappingsEnableSetgroups: false,
		Credential:                 &syscall.Credential{NoSetGroups: true},
		Pdeathsig:                  syscall.SIGKILL,
	}
	return cmd
}

// requireUserns skips where the machine forbids user namespaces, except under CI.
func requireUserns(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "" && (strings.Contains(err.Error(), "operation not permitted") ||
		strings.Contains(err.Error(), "no space left")) {
		t.Skipf("needs user namespaces: %v", err)
	}
}

// multi tells whether many ids are mapped.
func multi() bool { return os.Getenv(nsVar) != "1" }

// mountDir returns a new directory on a tmpfs of its own, as the runner has one.
func mountDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// mounted makes a tree, and unmounts it at the end of the test.
func mounted(t testing.TB, l Layout) *Tree {
	t.Helper()
	if l.Dir == "" {
		l.Dir = mountDir(t)
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
