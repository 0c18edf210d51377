package kernels

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// greeted returns a stream to Dial whose other end greets as a ZMTP peer with the given metadata.
func greeted(t *testing.T, metadata string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		hello := make([]byte, 64)
		hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
		copy(hello[12:], "NULL")
		command := "\x05READY" + metadata
		go io.Copy(io.Discard, theirs)
		theirs.Write(hello)
		theirs.Write(append([]byte{4, byte(len(command))}, command...))
	}()
	return ours
}

// TestHostileGreeting checks that a greeting on which zmq4 panics is an error.
func TestHostileGreeting(t *testing.T) {
	for _, metadata := range []string{
		"\x0bSocket-Type\x00\x00\x00\x03ODD", "\x0bSocket-Type\x00\x00", "\xffSocket-Type", "\x01", "\x0bSocket-Type\xff\xff\xff\xffROUTER", "",
	} {
		for _, open := range []func(net.Conn) error{
			func(c net.Conn) error { _, err := Dial(c, Dealer, nil); return err },
			func(c net.Conn) error { _, err := Accept(c, "shell", nil); return err },
		} {
			if err := open(greeted(t, metadata)); err == nil {
				t.Errorf("%q: no error", metadata)
			}
		}
	}
}

// TestPeers checks that what Dial sends arrives at Accept, with its buffers, and that a wrong signature does not.
func TestPeers(t *testing.T) {
	for _, c := range []struct{ theirs, want string }{{"key", ""}, {"other", "wrong signature"}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan *Peer)
		go func() {
			defer l.Close()
			a, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			p, err := Accept(a, "shell", []byte("key"))
			if err != nil {
				t.Error(err)
			}
			accepted <- p
		}()
		b, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client, err := Dial(b, Dealer, []byte(c.theirs))
		if err != nil {
			t.Fatal(err)
		}
		p := <-accepted
		m, err := newMessage("s", "comm_msg", map[string]int{"a": 1})
		if err != nil {
			t.Fatal(err)
		}
		m.Buffers = [][]byte{[]byte("raw"), {}}
		go client.Send(m)
		time.AfterFunc(10*time.Second, func() { p.Close() })
		got, err := p.Receive()
		switch {
		case c.want == "" && (err != nil || got.Header != m.Header || len(got.Buffers) != 2 || string(got.Buffers[0]) != "raw"):
			t.Errorf("%+v, %v", got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("key %s: %v", c.theirs, err)
		}
		client.Close()
		p.Close()
	}
}
