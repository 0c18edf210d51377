package server

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener for connections that a test makes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return nil }

// TestLingering checks that a server without clients ends, and that one with a client does not.
func TestLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := make(pipes, 1)
		l, ctx := Lingering(t.Context(), from, time.Second)
		time.Sleep(time.Second - 1)
		served, client := net.Pipe()
		from <- served
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Fatal("it ended with a client")
		}
		client.Close()
		c.Close()
		c.Close()
		left := time.Now()
		<-ctx.Done()
		if waited := time.Since(left); waited != time.Second {
			t.Errorf("it ended after %s", waited)
		}
	})
}
