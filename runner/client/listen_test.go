package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// dials connects to each port of its loopback, and prints what it reads or why it failed.
const dials = `perl -MIO::Socket::INET -e 'for (@ARGV) { my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $_, Timeout => 5); print $s ? <$s> // "nothing" : "$!", "\n" }' `

// answer serves text to every connection.
func answer(l net.Listener, text string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(conn, text)
		conn.Close()
	}
}

func (c corner) listener(s *Sandbox, port uint16) net.Listener {
	c.Helper()
	l, err := s.Listener(port)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { l.Close() })
	return l
}

// TestEscapeN14Listener: what a caller serves on a sandbox's loopback is reached only from this sandbox, no process of
// the sandbox can take the port, and the port is refused when the caller has closed it (N14).
func TestEscapeN14Listener(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	var boxes []*Sandbox
	for range 2 {
		s, err := c.oneShot(client, runner.Spec{Egress: &runner.Egress{Listen: []uint16{8089, 8090}}})
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, s)
		go answer(c.listener(s, 8089), s.ID)
	}
	other, err := c.oneShot(client, runner.Spec{Egress: &runner.Egress{Allow: []string{"good.test"}}})
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:8089", time.Second); err == nil {
		t.Error("the host reached the listener")
		conn.Close()
	}
	if got, _ := c.sh(other, dials+"8089"); got != "Connection refused" {
		t.Errorf("another sandbox: %q", got)
	}
	unused := c.listener(boxes[0], 8090)
	unused.Close()
	if _, err := boxes[0].Listener(8089); err == nil {
		t.Error("a listener was handed out twice")
	}
	if _, err := boxes[0].Listener(8091); err == nil {
		t.Error("a listener that was not requested")
	}
	got, _ := c.sh(boxes[0], `perl -MIO::Socket::INET -e 'for (["127.0.0.1", 0, 0], ["127.0.0.1", 1, 1], ["0.0.0.0", 1, 1]) {
		print "took the port\n" if IO::Socket::INET->new(LocalAddr => $_->[0], LocalPort => 8089, Listen => 1, ReuseAddr => $_->[1], ReusePort => $_->[2]) }'; `+dials+"8089 8090")
	if got != boxes[0].ID+"\nConnection refused" {
		t.Errorf("the first sandbox: %q", got)
	}
	if got, _ := c.sh(boxes[1], dials+"8089"); got != boxes[1].ID {
		t.Errorf("the second sandbox: %q", got)
	}
}

// TestListenerRun: in a sandbox of one command, which may run before its caller accepts, the connection waits.
func TestListenerRun(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// The receive queue of a listening socket (state 0A) is the number of connections that wait for accept.
	const queued = "8089 & until grep -q ':1F99 .* 0A 00000000:00000001 ' /proc/net/tcp; do sleep 0.01; done; echo queued; wait"
	spec := runner.Spec{Out: c.tree(), Egress: &runner.Egress{Listen: []uint16{8089}}}
	s, p, err := client.Run(context.Background(), spec, runner.Command{Argv: []string{"sh", "-c", dials + queued}, Stdout: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); line != "queued\n" {
		t.Fatalf("%q, %v", line, err)
	}
	go answer(c.listener(s, 8089), "late")
	out, _ := io.ReadAll(lines)
	if _, err := p.Wait(context.Background()); err != nil || strings.TrimSpace(string(out)) != "late" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestListenerRefused checks which listeners a sandbox cannot have.
func TestListenerRefused(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	for _, spec := range []runner.Spec{
		{Lifetime: runner.Persistent, Egress: &runner.Egress{Listen: []uint16{8089}}},
		{Egress: &runner.Egress{Listen: []uint16{8089, 8089}}},
		{Egress: &runner.Egress{Listen: []uint16{0}}},
		{Egress: &runner.Egress{GoProxy: true, Listen: []uint16{8087}}},
		{Egress: &runner.Egress{Listen: make([]uint16, 65)}},
		{Egress: &runner.Egress{Listen: []uint16{8086}, Routes: []runner.Route{{Port: 8086, To: "http://127.0.0.1:1"}}}},
	} {
		if _, err := c.oneShot(client, spec); code(err) != ipc.CodeInvalid {
			t.Errorf("%+v: %v", spec.Egress, err)
		}
	}
}
