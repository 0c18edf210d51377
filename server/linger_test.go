package server

import (
	"net"
	"testing"
	"time"
)

// TestLingering checks that a server without clients ends, and that one with a client does not.
func TestLingering(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l, ctx := Lingering(t.Context(), l, time.Second)
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		t.Fatal("it ended with a client")
	case <-time.After(1500 * time.Millisecond):
	}
	c.Close()
	served.Close()
	served.Close()
	<-ctx.Done()
}
