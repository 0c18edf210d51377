package supervisor

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRendezvous checks that a socket of the sandbox is connected with the returned end, and that one that drops every
// packet delays the calls of the sandbox for a bounded time.
func TestRendezvous(t *testing.T) {
	m, err := newMeetingPoint()
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	m.patience = time.Minute
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		own := socket{family: family, fd: newSocket(t, family)}
		theirs, err := m.rendezvous(own)
		if err != nil {
			t.Fatalf("family %d: %v", family, err)
		}
		defer unix.Close(theirs)
		if _, err := unix.Write(own.fd, []byte("hi")); err != nil {
			t.Error(err)
		}
		var text [8]byte
		if n, err := unix.Read(theirs, text[:]); err != nil || string(text[:n]) != "hi" {
			t.Errorf("family %d: %q, %v", family, text[:n], err)
		}
	}
	m.patience = 20 * time.Millisecond
	for _, flag := range []bool{false, true} {
		fd := newSocket(t, unix.AF_INET)
		drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
		switch err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop}); {
		case err == unix.EPERM && os.Getuid() != 0:
			t.Skip("this kernel lets only root filter the packets of a socket")
		case err != nil:
			t.Fatal(err)
		}
		unix.SetNonblock(fd, flag)
		if theirs, err := m.rendezvous(socket{family: unix.AF_INET, fd: fd}); err == nil {
			unix.Close(theirs)
			t.Errorf("nonblocking %v: a socket that drops every packet is connected", flag)
		}
	}
}

func newSocket(t *testing.T, family int) int {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
