package integration

import (
	"net"
	"os"
	"testing"
)

// Tests of the level minimal: a machine that forbids namespaces, such as a container with Docker's default profile.

// TestEscapeF1Minimal checks that no socket of a sandbox without a mount namespace sends to a socket of the host by its
// path (F1). Such a socket belongs to a daemon, for example to the system log.
func TestEscapeF1Minimal(t *testing.T) {
	b := newBox(t)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.dir + "/log", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Chmod(b.dir+"/log", 0o777)
	r := b.finish(b.withoutNamespaces(t)("run", "--", "/usr/bin/perl", "-MSocket", "-e", `
		for my $kind (SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET) {
			socketpair(A, B, AF_UNIX, $kind, 0) or next;
			send(A, "out", 0, pack_sockaddr_un($ARGV[0]));
			connect(A, pack_sockaddr_un($ARGV[0])) and send(A, "out", 0);
		}
		print "tried\n"`, b.dir+"/log"))
	if r.stdout != "tried\n" {
		t.Errorf("%+v", r)
	}
	c, err := net.Dial("unixgram", b.dir+"/log")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("last"))
	buf := make([]byte, 64)
	if n, err := l.Read(buf); string(buf[:n]) != "last" {
		t.Errorf("the host's socket got %q, %v", buf[:n], err)
	}
}
