package serve

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPeer checks that this user gets connections.
func TestPeer(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := (ownUser{l}).Accept(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeerSandbox checks that a process in another user namespace gets no connection to the unix socket, and one of this
// user does: a sandbox with a writable directory reaches the sockets in it (P9).
func TestPeerSandbox(t *testing.T) {
	if path := os.Getenv("PEER_SOCKET"); path != "" { // the child below
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.Copy(os.Stdout, c)
		return
	}
	path := t.TempDir() + "/s"
	l, err := listen("unix:"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "served")
			c.Close()
		}
	}()
	for _, flags := range []uintptr{0, unix.CLONE_NEWUSER} {
		child := exec.Command(os.Args[0], "-test.run=^TestPeerSandbox$")
		child.Env = append(os.Environ(), "PEER_SOCKET="+path)
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if flags != 0 {
			child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		}
		out, err := child.CombinedOutput()
		if served := strings.Contains(string(out), "served"); err != nil || served != (flags == 0) {
			t.Errorf("%#x: %v, %s", flags, err, out)
		}
	}
}
