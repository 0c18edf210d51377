package proxy

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// TestRelay checks that all bytes arrive in order. It covers sizes around the sizes of the buffer and of a spliced stretch, and
// a reader slower than the writer.
func TestRelay(t *testing.T) {
	for _, size := range []int{0, 1, pieceSize - 1, pieceSize, pieceSize + 1, 2 * pieceSize, spliced + pieceSize, spliced + pieceSize + 1, 3*spliced + 7} {
		client, in := pair(t)
		out, server := pair(t)
		sent := make([]byte, size)
		for i := range sent {
			sent[i] = byte(i ^ i>>8 ^ i>>16)
		}
		go func() { client.Write(sent); client.CloseWrite() }()
		type moved struct {
			n   int64
			err error
		}
		done := make(chan moved, 1)
		go func() {
			n, err := relay(out, in)
			out.CloseWrite()
			done <- moved{n, err}
		}()
		got, err := io.ReadAll(server)
		if m := <-done; err != nil || m.err != nil || m.n != int64(size) || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: %d arrived, %d said: %v, %v", size, len(got), m.n, m.err, err)
		}
	}
}

// TestRelayMessages checks that each small message arrives before the next one is sent.
func TestRelayMessages(t *testing.T) {
	client, in := pair(t)
	out, server := pair(t)
	go relay(out, in)
	buf := make([]byte, 2*pieceSize)
	for i := 1; i <= len(buf); i *= 2 {
		client.Write(buf[:i])
		if n, err := io.ReadFull(server, buf[:i]); err != nil {
			t.Fatalf("%d of %d: %v", n, i, err)
		}
	}
}

// TestRelayErrors checks that relay returns an error after a reset, and when the proxy closes a connection.
func TestRelayErrors(t *testing.T) {
	for name, end := range map[string]func(client, in, out, server *net.TCPConn){
		"reset by the sender":   func(client, _, _, _ *net.TCPConn) { reset(client) },
		"closed by us":          func(_, in, _, _ *net.TCPConn) { in.Close() },
		"reset by the receiver": func(client, _, _, server *net.TCPConn) { reset(server); flood(client) },
		"closed while writing":  func(client, _, out, _ *net.TCPConn) { flood(client); out.Close() },
	} {
		client, in := pair(t)
		out, server := pair(t)
		done := make(chan error, 1)
		go func() { _, err := relay(out, in); done <- err }()
		client.Write([]byte("x"))
		io.ReadFull(server, make([]byte, 1))
		end(client, in, out, server)
		if err := <-done; err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// flood writes more than the sockets on the way can buffer, and does not wait.
func flood(c *net.TCPConn) {
	go func() { io.CopyN(c, zeros{}, 1<<30) }()
}

// TestRelayDescriptors checks that an idle tunnel, and one with small messages, opens no pipe.
func TestRelayDescriptors(t *testing.T) {
	client, in := pair(t)
	out, server := pair(t)
	before := opened(t)
	go relay(out, in)
	for range 3 {
		client.Write([]byte("x"))
		io.ReadFull(server, make([]byte, 1))
	}
	if now := opened(t); now > before {
		t.Errorf("%d descriptors, before %d", now, before)
	}
}

func opened(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
