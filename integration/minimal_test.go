package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestEscapeN42Supervised attacks the runner where it makes the connections of a sandbox: an address or a descriptor that
// another thread exchanges while connect(2) waits (N42), processes that are killed meanwhile, TCP Fast Open, source
// routes, other sockets, bad pointers, filters of its own, and the runner itself. No server outside hears of it, and the
// proxy can still be reached after each attack.
func TestEscapeN42Supervised(t *testing.T) {
	onInternet(t, func(n *internet) {
		n.under = []string{tools + "/nons"}
		games := strings.Fields("rewrite descriptors fastopen options families datagrams pointers threads forks servers numbers many own supervisor")
		r := n.demesne(append([]string{"run", "--allow-domain", "good.test", "--in", tools + "/netgames", "--", "sh", "-c", `exec "$DEMESNE_IN/netgames" "$@"`, "sh"}, games...)...)
		if want := strings.Join(games, " done\n") + " done\n"; r.code != 0 || r.stdout != want {
			n.Errorf("%+v", r)
		}
		n.inherited()
		if len(n.seen) > 0 {
			n.Errorf("seen %q", n.seen)
		}
	})
}

// inherited hands over a TCP socket as stdin, which the caller made and did not connect. The command gets another stdin.
func (n *internet) inherited() {
	n.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		n.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	cmd := n.command("demesne", "run", "-i", "--allow-domain", "good.test", "--in", tools+"/netgames", "--", "sh", "-c", `exec "$DEMESNE_IN/netgames" inherited`)
	cmd.Stdin = socket
	if r := n.finish(cmd); r.code != 0 || r.stdout != "inherited done\n" {
		n.Errorf("a socket as stdin: %+v", r)
	}
}

// rightsGame gets sockets of another process by SCM_RIGHTS, and tries to reach the machine's with each: it prints True if there were some.
const rightsGame = `import os, socket, sys
named, path, port = "\0" + sys.argv[1], sys.argv[2], int(sys.argv[3])
def attempt(f, *args):
    try: f(*args)
    except OSError: pass
def own():
    for family, kind in (1, 1), (1, 2), (2, 1), (2, 2), (10, 1):
        try: yield socket.socket(family, kind)
        except OSError: pass
    for kind in 1, 2, 5:
        try: yield from socket.socketpair(1, kind)
        except OSError: pass
a, b = socket.socketpair()
if os.fork() == 0:
    sent = list(own())
    socket.send_fds(b, [b"x"], [s.fileno() for s in sent])
    os._exit(0)
os.wait()
received = socket.recv_fds(a, 1, 99)[1]
for fd in received:
    for copy in fd, os.dup(fd):
        for family in 1, 2, 10:
            s = socket.socket(family, 1, 0, copy)
            for to in (named, named + "d", path) if family == 1 else (("127.0.0.1", port),) if family == 2 else (("::ffff:127.0.0.1", port),):
                attempt(s.sendto, b"out", to)
                attempt(s.sendmsg, [b"out"], [], 0, to)
                attempt(s.connect, to)
                attempt(s.send, b"out")
                attempt(s.bind, to)
            s.detach()
print(len(received) >= 4, flush=True)
`

// TestEscapeN46Rights passes descriptors between processes of a sandbox (N46): sockets of pairs, and the TCP sockets that the
// runner makes. No receiver reaches a socket of the machine with them: by its abstract name, by its path, or on the loopback.
func TestEscapeN46Rights(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		n.under = []string{tools + "/nons"}
		name, path := "demesne-n46-"+filepath.Base(n.dir), n.dir+"/log"
		var datagrams []*net.UnixConn
		for _, at := range []string{"@" + name + "d", path} {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
			if err != nil {
				n.Fatal(err)
			}
			defer c.Close()
			datagrams = append(datagrams, c)
		}
		os.Chmod(path, 0o777)
		var streams []net.Listener
		for _, at := range [][2]string{{"unix", "@" + name}, {"tcp", "127.0.0.1:0"}} {
			l, err := net.Listen(at[0], at[1])
			if err != nil {
				n.Fatal(err)
			}
			defer l.Close()
			streams = append(streams, l)
		}
		_, port, _ := net.SplitHostPort(streams[1].Addr().String())
		for _, network := range []string{"--egress=none", "--allow-domain=good.test"} {
			r := n.demesne("run", network, "--in", n.file("rights.py", rightsGame, 0o644), "--", "sh", "-c", `exec python3 "$DEMESNE_IN/rights.py" "$@"`, "sh", name, path, port)
			if r.code != 0 || r.stdout != "True\n" {
				n.Errorf("%s: %+v", network, r)
			}
		}
		// Data or a connection of a sandbox would come first.
		for _, c := range datagrams {
			n.hearsLast(c.LocalAddr(), func() (net.Conn, error) { return c, nil })
		}
		for _, l := range streams {
			n.hearsLast(l.Addr(), l.Accept)
		}
		if len(n.seen) > 0 {
			n.Errorf("seen %q", n.seen)
		}
	})
}

// hearsLast checks that the first data for a socket is the test's.
func (n *internet) hearsLast(at net.Addr, accept func() (net.Conn, error)) {
	n.Helper()
	d, err := net.Dial(at.Network(), at.String())
	if err != nil {
		n.Fatal(err)
	}
	defer d.Close()
	d.Write([]byte("last"))
	c, err := accept()
	if err != nil {
		n.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 64)
	if k, err := c.Read(buf); string(buf[:k]) != "last" {
		n.Errorf("%s got %q, %v", at, buf[:k], err)
	}
}

// TestMinimalNames checks that programs at the level minimal find allowed names, localhost, and no other name.
func TestMinimalNames(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		n.under = []string{tools + "/nons"}
		r := n.inside(`python3 - <<'E'
import socket
for name in "good.test", "dark.test", "localhost", "own.test":
    try: print(name, *sorted({a[4][0] for a in socket.getaddrinfo(name, 80)}))
    except OSError as e: print(name, type(e).__name__)
E
env -i /usr/bin/getent ahostsv4 good.test | cut -d' ' -f1 | sort -u # by datagrams`, "--allow-domain", "good.test")
		if r.stdout != "good.test 198.19.0.1 fd64:6d65:736e:1::1\ndark.test gaierror\nlocalhost 127.0.0.1 ::1\nown.test gaierror\n198.19.0.1\n" {
			n.Errorf("%+v", r)
		}
	})
}

// TestMinimalTwice checks that a sandbox with a network is refused where the calls of its processes have a supervisor
// already, because the kernel allows one. Without a network it is made.
func TestMinimalTwice(t *testing.T) {
	b := newBox(t)
	watched := func(args ...string) result {
		return b.finish(b.command(tools+"/nons", append([]string{"--supervised", tools + "/nons", bin + "/demesne"}, args...)...))
	}
	r := watched("run", "--allow-domain", "good.test", "--", "true")
	if r.code != 125 || !strings.Contains(r.stderr, "have a supervisor already") || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("with a network: %+v", r)
	}
	if r := watched("run", "--", "echo", "runs"); r.stdout != "runs\n" {
		t.Errorf("without one: %+v", r)
	}
}

// TestMinimalMCP checks that MCP's default call, which has a network and starts in /out, runs at the level minimal. So do
// sandboxes of sandbox_create.
func TestMinimalMCP(t *testing.T) {
	b := newBox(t)
	b.under = []string{tools + "/nons"}
	c := b.mcp()
	r := c.must("sandbox_script", args{"command": `echo made > made; test "$(pwd)" = "$DEMESNE_OUT"; echo $?; env | grep -c HTTP_PROXY`})
	if r.field("exit_code") != "0" || r.field("stdout") != "0\n1\n" {
		t.Fatalf("%+v", r.Fields)
	}
	if got := readFile(t, filepath.Join(r.field("output_dir"), "made")); got != "made\n" {
		t.Errorf("/out/made is %q", got)
	}
	if receipt := r.receipt(); receipt["level"] != "minimal" || !strings.HasPrefix(fmt.Sprint(receipt["network"]), "filtered") {
		t.Errorf("receipt: %v", receipt)
	}
	id := c.must("sandbox_create", args{}).field("sandbox_id")
	if r := c.must("sandbox_exec", args{"sandbox_id": id, "command": "touch f; ls", "cwd": "/workspace"}); r.field("stdout") != "f\n" {
		t.Errorf("/workspace: %+v", r.Fields)
	}
	c.must("sandbox_destroy", args{"sandbox_id": id})
}

// TestMinimalPlaces checks that a container which was prepared for it has /in, /out and /workspace at the level minimal,
// one sandbox at a time.
func TestMinimalPlaces(t *testing.T) {
	b := newBox(t)
	bwrap := program(t, "bwrap")
	script := `for d in in out workspace; do cd /$d && pwd -L; done; cat /in/data; echo x > /out/f; echo "$DEMESNE_OUT"; touch /workspace/w`
	container := []string{"--dev-bind", "/dev", "/dev", "--proc", "/proc", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--bind", b.dir, b.dir, "--ro-bind", bin, bin, "--ro-bind", tools, tools, "--dir", "/places"}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		container = append(container, "--symlink", "usr/"+d, "/"+d)
	}
	for _, d := range []string{"in", "out", "workspace"} {
		container = append(container, "--symlink", "/places/"+d, "/"+d)
	}
	demesne := tools + "/nons " + bin + "/demesne "
	inside := demesne + `run --json --out ` + b.dir + `/o --in ` + b.file("data", "data\n", 0o644) + ` -- sh -c '` + script + `'; ls /places` // nothing is left there
	r := b.finish(b.command(bwrap, append(container, "sh", "-c", inside)...))
	p := b.parse(result{code: r.code, stdout: r.stdout, stderr: r.stderr})
	if p.Stdout != "/in\n/out\n/workspace\ndata\n/out\n" || p.Receipt.Level != "minimal" {
		t.Errorf("%+v\n%s", p, r.stderr)
	}
	if got := readFile(t, b.dir+"/o/f"); got != "x\n" {
		t.Errorf("/out/f is %q", got)
	}
}

// TestMinimalLimits checks that the limits hold at the level minimal, for all that a sandbox can write to, and that the
// receipt names what holds.
func TestMinimalLimits(t *testing.T) {
	b := newBox(t)
	b.under = []string{tools + "/nons"}
	const fill = `i=0; while head -c 8m /dev/zero > %s/f$i; do i=$((i+1)); done; echo it ended`
	work, own := b.mkdir("work"), b.mkdir("own")
	for _, row := range []struct{ name, reason, script string }{
		{"the home directory", "disk", fmt.Sprintf(fill, "$HOME")},
		{"temporary files", "disk", fmt.Sprintf(fill, "$TMPDIR")},
		{"the workspace", "disk", fmt.Sprintf(fill, work)},
		{"a mount", "disk", fmt.Sprintf(fill, own)},
		{"/out", "disk", fmt.Sprintf(fill, "$DEMESNE_OUT")},
		{"processes", "pids", `while :; do sleep 3222 & done`},
		{"memory", "oom", `exec "$DEMESNE_IN/eat" many`},
	} {
		p := b.parse(b.demesne("run", "--json", "--timeout", "5m", "--disk", "64m", "--memory", "128m", "--pids", "50", "--workspace", work, "--mount", own+":rw", "--in", tools+"/eat", "--", "sh", "-c", row.script))
		if p.Reason != row.reason {
			t.Errorf("%s: reason %q, exit %d: %s\n%s", row.name, p.Reason, p.ExitCode, p.Detail, p.Stderr)
		}
		for _, l := range p.Receipt.Limits {
			if l.Name != "cpus" && (l.Status != "degraded" && l.Status != "held" || strings.Contains(l.Mechanism, "tmpfs")) {
				t.Errorf("%s: %+v", row.name, l)
			}
		}
		for _, dir := range []string{work, own} {
			for _, name := range names(dir) {
				os.Remove(dir + "/" + name)
			}
		}
	}
}
