package rootfs

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestPTY(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := mounted(t, Layout{})
	withDev(t, tree)
	for want := range 3 {
		uid := want * 1000
		if !nstest.Many() {
			uid = 0
		}
		master, n, err := tree.OpenPTY(uid, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close()
		if n != want {
			t.Errorf("number %d, want %d", n, want)
		}
		var st unix.Stat_t
		slave := filepath.Join(tree.Dev, "pts", strconv.Itoa(n))
		if err := unix.Stat(slave, &st); err != nil || int(st.Uid) != uid || st.Mode&0o777 != 0o620 {
			t.Errorf("%s: uid %d mode %o, %v", slave, st.Uid, st.Mode, err)
		}
		if wantGID := uint32(ttyID); nstest.Many() && st.Gid != wantGID {
			t.Errorf("%s: gid %d, want %d", slave, st.Gid, wantGID)
		}
		echo(t, tree, master, n)
	}
}

// TestDetach checks that a sandbox in a mount namespace of its own keeps the tree that the runner detached.
func TestDetach(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	before := mountCount(t)
	tree := mounted(t, Layout{Dir: t.TempDir()})
	sandbox := exec.Command("/bin/sh", "-c", "echo ready; read x; cat /etc/hostname")
	sandbox.Dir, sandbox.SysProcAttr = "/", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Chroot: tree.Root}
	in, ierr := sandbox.StdinPipe()
	out, oerr := sandbox.StdoutPipe()
	if err := errors.Join(ierr, oerr, sandbox.Start()); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(out)
	if line, err := read.ReadString('\n'); err != nil {
		t.Error(line, err)
	}
	if err := errors.Join(tree.Detach(), tree.Detach()); err != nil {
		t.Error(err)
	}
	if after := mountCount(t); after != before {
		t.Errorf("%d mounts after Detach, %d before", after, before)
	}
	for want := range 2 {
		master, n, err := tree.OpenPTY(-1, -1)
		if err != nil || n != want {
			t.Fatalf("terminal %d, %v", n, err)
		}
		defer master.Close()
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	if line, err := read.ReadString('\n'); err != nil || line != "sandbox\n" {
		t.Errorf("the sandbox read %q, %v", line, err)
	}
	if err := errors.Join(sandbox.Wait(), tree.Unmount()); err != nil {
		t.Error(err)
	}
	if _, _, err := tree.OpenPTY(-1, -1); err == nil {
		t.Error("a terminal after Unmount")
	}
}

// echo talks to a program on the terminal, which must be its controlling one.
func echo(t *testing.T, tree *Tree, master *os.File, n int) {
	t.Helper()
	slave, err := os.OpenFile(filepath.Join(tree.Dev, "pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	cmd := exec.Command("/bin/sh", "-c", `stty -echo; tty; echo ready >/dev/tty; read x; echo "got $x"`)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Chroot: tree.Root}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := master.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal("the master does not poll: ", err)
	}
	in := bufio.NewReader(master)
	for _, want := range []string{"/dev/pts/" + strconv.Itoa(n), "ready", "got hello"} {
		if strings.HasPrefix(want, "got") {
			if _, err := master.WriteString("hello\n"); err != nil {
				t.Error(err)
			}
		}
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != want {
			t.Errorf("read %q, %v, want %q", line, err, want)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
