package network

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// listen returns a listening socket as a caller sends it.
func listen(t *testing.T, network, at string) (*os.File, net.Addr) {
	t.Helper()
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	defer l.Close()
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	return f, l.Addr()
}

// TestClose: after Close no connection is accepted, and a unix socket's path is removed.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	for network, at := range map[string]string{"unix": path, "tcp": "127.0.0.1:0"} {
		f, addr := listen(t, network, at)
		name := ""
		if network == "unix" {
			name = path
		}
		in, err := Publish(f, name, nil, 80)
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		if c, err := net.Dial(network, addr.String()); err == nil {
			c.Close()
			t.Errorf("%s: a connection was accepted", network)
		}
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// short is a listener that fails once, as if out of descriptors.
type short struct {
	net.Listener
	failed bool
}

func (s *short) Accept() (net.Conn, error) {
	if !s.failed {
		s.failed = true
		return nil, syscall.EMFILE
	}
	return s.Listener.Accept()
}

// TestWithoutDescriptors: a connection that arrives while no descriptor is free is handled once one is. This Forward
// is closed, so it then closes the connection.
func TestWithoutDescriptors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in := &Forward{listener: &short{Listener: l}, slots: make(chan struct{}, most)}
	served := make(chan struct{})
	go func() { in.serve(); close(served) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		select {
		case <-served:
			c.Close() // serve has ended and will not close it
		case <-t.Context().Done():
		}
	}()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("not turned away: %v", err)
	}
	l.Close()
	<-served
}
