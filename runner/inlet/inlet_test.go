package inlet

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// listen gives a listening socket as a caller sends it.
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

// TestClose: nobody gets in after it, and of a unix socket no name is left.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	for network, at := range map[string]string{"unix": path, "tcp": "127.0.0.1:0"} {
		f, addr := listen(t, network, at)
		name := ""
		if network == "unix" {
			name = path
		}
		in, err := Open(f, name, nil, 80)
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		if c, err := net.Dial(network, addr.String()); err == nil {
			c.Close()
			t.Errorf("%s: somebody got in", network)
		}
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
