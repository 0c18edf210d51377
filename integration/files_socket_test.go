package integration

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// say connects to a socket, sends a line, and prints the answer.
const say = `perl -MIO::Socket::UNIX -e '
$s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or print("refused\n"), exit;
print $s "hello\n"; $s->flush; shutdown $s, 1; print <$s>' `

// TestSocket checks that a sandbox can connect to a socket given by --socket, and to no other. It can do nothing
// else with that socket.
func TestSocket(t *testing.T) {
	b := newBox(t)
	l, err := net.Listen("unix", b.dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Chmod(b.dir+"/s", 0o600)
	go echo(l)
	if got := b.sh(say+"/in/agent; "+say+b.dir+"/s; ls /in; rm /in/agent 2>/dev/null || echo kept", "--socket", b.dir+"/s:agent"); got != "hello\nrefused\nagent\nkept\n" {
		t.Errorf("--socket: %q", got)
	}
	if r := b.demesne("create", "--name", "with", "--socket", b.dir+"/s"); r.code != 0 {
		t.Fatalf("create: %+v", r)
	}
	if r := b.demesne("exec", "with", "-c", say+"/in/s"); r.stdout != "hello\n" {
		t.Errorf("exec: %+v", r)
	}
	own, err := filepath.Glob(b.run + "/demesne/*.sock")
	if err != nil || len(own) != 1 {
		t.Fatalf("the runner's socket: %q, %v", own, err)
	}
	if r := b.demesne("run", "--socket", own[0], "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "demesne's run directory") {
		t.Errorf("--socket of the runner: %+v", r)
	}
	b.demesne("stop", "with")
	if r := b.demesne("exec", "with", "-c", say+"/in/s"); r.stdout != "hello\n" {
		t.Errorf("started again: %+v", r)
	}
	b.demesne("rm", "with")
	if r := b.demesne("run", "--in", b.dir+"/s", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "hint: use --socket") {
		t.Errorf("--in of a socket: %+v", r)
	}
	if r := b.demesne("run", "--socket", b.run, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "is not a socket") {
		t.Errorf("--socket of a directory: %+v", r)
	}
}

// echo copies each connection's input back, until l is closed.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.Copy(c, c)
		c.Close()
	}
}

// TestSocketAgent checks that a sandbox can use an agent's keys, which never leave the agent. An agent answers
// only its own user; real root's sandboxes run as another.
func TestSocketAgent(t *testing.T) {
	b := newBox(t)
	b.sshAgent()
	r := b.demesne("run", "--socket", b.dir+"/agent.sock", "--env", "SSH_AUTH_SOCK=/in/agent.sock", "--", "ssh-add", "-l")
	if answered := strings.HasSuffix(r.stdout, " mine (ED25519)\n"); answered != (os.Getuid() != 0) {
		t.Errorf("ssh-add -l: %+v", r)
	}
}
