package arrivals

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListener checks that connections arrive in turn, that messages without one are passed over, and that both ends can
// end it.
func TestListener(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[0]), "theirs")
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	l, err := Listener(theirs, at)
	theirs.Close()
	if err != nil || l.Addr() != at {
		t.Fatalf("%v, %v", l, err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]int{nil, pair[:], {pair[0]}} {
		if err := unix.Sendmsg(fds[1], []byte("service"), unix.UnixRights(files...), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	unix.Write(pair[1], []byte("hi"))
	var text [8]byte
	if n, err := c.Read(text[:]); string(text[:n]) != "hi" {
		t.Errorf("%q, %v", text[:n], err)
	}
	unix.Close(fds[1])
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the sender has ended: %v", err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	f, _ := plain.(*net.TCPListener).File()
	defer f.Close()
	if l, err := Listener(f, at); err != nil || l.Addr().String() != plain.Addr().String() {
		t.Errorf("a listening socket: %v, %v", l, err)
	} else {
		l.Close()
	}
	unix.Close(pair[0])
	unix.Close(pair[1])
}
