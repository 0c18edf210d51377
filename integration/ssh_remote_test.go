package integration

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// reading is a program for a sandbox that prints what ports of its loopback answer, one after the other.
const reading = `python3 -c '
import socket, sys
for port in sys.argv[1:]:
    c = socket.create_connection(("127.0.0.1", int(port))); c.sendall(b"from inside"); c.shutdown(socket.SHUT_WR)
    print(c.makefile().read(), flush=True)' `

// echoing listens on this machine, and answers what it has heard.
func echoing(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				got, _ := io.ReadAll(c)
				io.WriteString(c, "outside heard "+string(got))
			}()
		}
	}()
	return l.Addr().String()
}

// TestSSHRemote forwards ports of a sandbox to this machine (ssh -R), with the flag that allows it.
func TestSSHRemote(t *testing.T) {
	program(t, "python3")
	b := newSSH(t)
	to := echoing(t)
	ssh := func(args ...string) result {
		return b.demesne(append([]string{"ssh", "--forward-remote", "-o", "ExitOnForwardFailure=yes"}, args...)...)
	}
	// The listener ends with its connection, which ends a moment after the client.
	free := func() {
		t.Helper()
		eventually(t, "the port to end with its connection", func() bool {
			return strings.Contains(b.demesne("exec", "build", "-c", reading+"9000").stderr, "Connection refused")
		})
	}
	// Many connections of one port, one at a time and all at once.
	if r := ssh("-R", "9000:"+to, "-R", "localhost:9001:"+to, "build", reading+strings.Repeat("9000 9001 ", 20)); r.stdout != strings.Repeat("outside heard from inside\n", 40) {
		t.Errorf("two ports: %+v", r)
	}
	free()
	if r := ssh("-R", "9000:"+to, "build", "for i in $(seq 30); do "+reading+"9000 & done; wait"); strings.Count(r.stdout, "outside heard from inside\n") != 30 {
		t.Errorf("30 at once: %+v", r)
	}
	free()
	cmd := b.command("demesne", "ssh", "--forward-remote", "-N", "-R", "0:"+to, "build")
	says, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line := make([]byte, 256)
	n, _ := says.Read(line)
	port, isPort := strings.CutPrefix(string(line[:n]), "Allocated port ")
	if port, _, _ = strings.Cut(port, " "); !isPort {
		t.Fatalf("-R 0: %q", line[:n])
	}
	if r := b.demesne("ssh", "build", reading+port); r.stdout != "outside heard from inside\n" {
		t.Errorf("port %s: %+v", port, r)
	}
	if r := ssh("-R", port+":"+to, "build", "sleep 30"); r.code == 0 || !strings.Contains(r.stderr, "is it taken?") {
		t.Errorf("a port that is taken: %+v", r)
	}
}

// TestEscapeN48Many opens more connections of a port at once than the user's machine gets at once. The rest wait, and take
// their turns; another port goes on.
func TestEscapeN48Many(t *testing.T) {
	program(t, "python3")
	b := newSSH(t)
	const atOnce, all = 16, 40
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	arrived, answer := make(chan struct{}, all), make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			arrived <- struct{}{}
			go func() {
				defer c.Close()
				<-answer
				io.WriteString(c, "answer")
			}()
		}
	}()
	other := echoing(t)
	cmd := b.command("demesne", "ssh", "--forward-remote", "-R", "9000:"+l.Addr().String(), "-R", "9001:"+other, "build", `python3 -c '
import socket, sys
all = [socket.create_connection(("127.0.0.1", 9000)) for _ in range(`+strconv.Itoa(all)+`)]
print("connected", flush=True)
sys.stdin.readline()
c = socket.create_connection(("127.0.0.1", 9001)); c.shutdown(socket.SHUT_WR)
print(c.makefile().read(), flush=True)
def read(c):
    with c: return c.makefile().read() # it is open until then, and takes a turn
print([read(c) for c in all].count("answer"))'`)
	var told strings.Builder
	cmd.Stderr = &told
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	says := bufio.NewScanner(pipe)
	says.Scan()
	for range atOnce {
		<-arrived
	}
	io.WriteString(in, "\n")
	if says.Scan(); says.Text() != "outside heard " {
		t.Errorf("another port meanwhile: %q", says.Text())
	}
	if n := len(arrived); n > 0 {
		t.Errorf("%d connections beyond the bound arrived", n)
	}
	close(answer)
	if says.Scan(); says.Text() != strconv.Itoa(all) {
		t.Errorf("answers: %q, want %d", says.Text(), all)
	}
	if err := cmd.Wait(); err != nil || strings.Count(told.String(), "16 connections of port 9000 are open") != 1 {
		t.Errorf("%v: %q", err, told.String())
	}
}

// TestEscapeN48Remote asks for listeners that the user did not allow, or that other machines could reach.
func TestEscapeN48Remote(t *testing.T) {
	program(t, "python3")
	b := newSSH(t)
	for _, c := range []struct{ want, line string }{
		{"-R is refused", "-R 1234:localhost:22"},
		{"-R is refused", "-R 0:localhost:22"},
		{"-R is refused", "-R /tmp/s:localhost:22"},
		{"-R is refused", "--forward-remote -R /tmp/s:localhost:22"},
		{"-R is refused", "--forward-agent -R 1234:localhost:22"},
		{"only localhost of the sandbox can listen, not *", "--forward-remote -R *:1234:localhost:22"},
		{"only localhost of the sandbox", "--forward-remote -R 0.0.0.0:1234:localhost:22"},
	} {
		flags := strings.Fields(c.line)
		own := 0
		for strings.HasPrefix(flags[own], "--") {
			own++
		}
		args := append(append([]string{"ssh"}, flags[:own]...), "-o", "ExitOnForwardFailure=yes")
		if r := b.demesne(append(append(args, flags[own:]...), "build", "true")...); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
}
