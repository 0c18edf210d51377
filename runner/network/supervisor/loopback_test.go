package supervisor

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLoopback checks that a server of a sandbox accepts only connections of the same sandbox, and that a client of a
// sandbox reaches no other server at the address of a closed one.
func TestLoopback(t *testing.T) {
	if err := CanListen(); err != nil {
		t.Skip(err)
	}
	one, two := mustLoopback(t), mustLoopback(t)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		server := socket{family: family, fd: newSocket(t, family)}
		if err := one.listen(7, server, 5); err != nil {
			t.Fatal(err)
		}
		at, err := nameOf(unix.Getsockname(server.fd))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := one.server(at); !ok || got != at || !one.listens(7) {
			t.Errorf("family %d: server at %v, %v", family, got, ok)
		}
		if got, ok := two.server(at); ok {
			t.Errorf("family %d: another sandbox has server %v", family, got)
		}
		two.listening[at] = 9
		two.patience = 20 * time.Millisecond
		for _, clients := range []int{unix.AF_INET, unix.AF_INET6} {
			if err := one.dial(socket{family: clients, fd: newSocket(t, clients)}, at); err != nil {
				t.Errorf("families %d and %d: %v", family, clients, err)
			}
			if err := two.dial(socket{family: clients, fd: newSocket(t, clients)}, at); err == nil {
				t.Errorf("families %d and %d: another sandbox is connected", family, clients)
			}
		}
		d := net.Dialer{Timeout: 20 * time.Millisecond}
		if c, err := d.Dial("tcp", at.String()); err == nil {
			c.Close()
			t.Errorf("family %d: another process is connected", family)
		}
		unix.Close(server.fd)
		if _, ok := one.server(at); ok || one.listens(7) {
			t.Errorf("family %d: a closed server is found", family)
		}
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		one.listening[at] = 7
		one.patience = 20 * time.Millisecond
		if err := one.dial(socket{family: family, fd: newSocket(t, family)}, at); err == nil {
			t.Errorf("family %d: connected to a server of the machine", family)
		}
		one.patience = patience
		delete(one.listening, at)
		l.Close()
	}
}

func mustLoopback(t *testing.T) loopback {
	l, err := newLoopback()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLoopbackBind checks to which addresses a sandbox binds its sockets.
func TestLoopbackBind(t *testing.T) {
	l := mustLoopback(t)
	if l.blocked != nil {
		t.Skip(l.blocked)
	}
	for at, want := range map[string]error{
		"127.0.0.1:0": nil, "0.0.0.0:0": nil, "127.255.255.254:0": nil, "[::1]:0": nil, "[::]:0": nil,
		"8.2.2.2:0": unix.EADDRNOTAVAIL, "198.18.0.1:3128": unix.EADDRNOTAVAIL, "[fd00::1]:0": unix.EADDRNOTAVAIL,
	} {
		a := netip.MustParseAddrPort(at)
		family := unix.AF_INET
		if a.Addr().Is6() {
			family = unix.AF_INET6
		}
		s := socket{family: family, fd: newSocket(t, family)}
		if err := l.bind(s, a); err != want {
			t.Errorf("%s: %v", at, err)
		}
		if name, err := nameOf(unix.Getsockname(s.fd)); want == nil && (err != nil || name.Addr() != l.own(family)) {
			t.Errorf("%s: bound to %v, %v", at, name, err)
		}
		s.datagrams = true
		if err := l.bind(s, a); err != unix.EACCES {
			t.Errorf("%s: datagrams: %v", at, err)
		}
	}
}
