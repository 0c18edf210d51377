package peeruser

import (
	"net"
	"os"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if uid, err := Of(s); err != nil || uid != os.Geteuid() {
			t.Errorf("%s: %d %v", address, uid, err)
		}
		c.(*net.TCPConn).CloseWrite() // would be root's
		if uid, err := Of(s); err != ErrNone {
			t.Errorf("a closed one: %d %v", uid, err)
		}
	}
}
