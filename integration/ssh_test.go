package integration

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// newSSH makes a sandbox called build and the environment in which clients reach it.
func newSSH(t *testing.T, flags ...string) *box {
	b := newBox(t)
	program(t, "ssh")
	b.extra = append(b.extra, "PATH="+bin+":"+os.Getenv("PATH"))
	if r := b.demesne(append([]string{"create", "--name", "build"}, flags...)...); r.code != 0 {
		t.Fatal(r)
	}
	t.Cleanup(func() { b.demesne("rm", "build") })
	b.file("config", b.demesne("ssh", "--config").stdout, 0o644)
	return b
}

// runs runs a program of this machine with the box's environment.
func (b *box) runs(input, name string, args ...string) result {
	b.Helper()
	if !strings.Contains(name, "/") {
		name = program(b, name)
	}
	cmd := b.command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	return b.finish(cmd)
}

// TestSSH checks commands, their input, output and end, with OpenSSH's client by both ways to start it.
func TestSSH(t *testing.T) {
	b := newSSH(t)
	for _, way := range [][]string{{bin + "/demesne", "ssh", "build"}, {program(t, "ssh"), "-F", b.dir + "/config", "demesne-build"}} {
		run := func(input string, args ...string) result {
			return b.runs(input, way[0], append(way[1:len(way):len(way)], args...)...)
		}
		for _, c := range []struct {
			input, command string
			want           result
		}{
			{"", "echo out; echo err >&2; exit 3", result{3, "out\n", "err\n"}},
			{"a b\n", "cat; pwd", result{0, "a b\n/workspace\n", ""}},
			{"", "echo $LANG; echo $DEMESNE_TEST_SECRET$SSH_AUTH_SOCK", result{0, "C.UTF-8\n\n", ""}},
			{"echo piped\n", "", result{0, "piped\n", ""}},
			{"", "(sleep 300; echo late) & echo now", result{0, "now\n", ""}},
		} {
			got := run(c.input, strings.Fields(c.command+" ")...)
			if c.command != "" {
				got = run(c.input, c.command)
			}
			if c.command == "" {
				got.stderr = "" // "no terminal" of a shell
			}
			if got != c.want {
				t.Errorf("%q: %+v, want %+v", c.command, got, c.want)
			}
		}
		if r := run("", "kill -TERM $$"); r.code != 255 { // of ssh: the command had no exit code
			t.Errorf("signal: %+v", r)
		}
		if r := run("", "echo $FOO"); strings.TrimSpace(r.stdout) != "" {
			t.Errorf("a variable reached the sandbox: %+v", r)
		}
	}
	data := make([]byte, 8<<20)
	rand.Read(data)
	cmd := b.command("demesne", "ssh", "build", "cat")
	var back bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &back
	if err := cmd.Run(); err != nil || !bytes.Equal(back.Bytes(), data) {
		t.Errorf("8 MiB: %v, %d bytes back", err, back.Len())
	}
	r := b.demesne("ssh", "none", "true")
	if r.code != 255 || !strings.Contains(r.stderr, `find sandbox "none": no such sandbox`) || !strings.HasSuffix(r.stderr, "hint: demesne ls lists sandboxes\n") {
		t.Errorf("no such sandbox: %+v", r)
	}
	if names := names(b.home + "/.ssh"); len(names) > 0 {
		t.Errorf("the home has .ssh: %v", names)
	}
	b.demesne("stop", "build")
	if r := b.demesne("ssh", "build", "echo again"); r.stdout != "again\n" {
		t.Errorf("a stopped sandbox: %+v", r)
	}
}

// TestSSHTerminal checks the shell on a terminal: its size and its changes, and that a signal is a key.
func TestSSHTerminal(t *testing.T) {
	b := newSSH(t)
	term := b.terminal("ssh", "build")
	term.typ("tty; stty size; echo $TERM\n")
	term.expect("/dev/pts/")
	term.expect("24 80")
	term.expect("xterm")
	term.resize(50, 132)
	eventually(t, "the new size to arrive", func() bool {
		term.typ("stty size\n")
		return strings.Contains(term.screen(), "50 132")
	})
	term.typ("sleep 3366\n")
	eventually(t, "sleep to run", func() bool { return sleepers("3366") == 1 })
	term.typ("\x03")
	eventually(t, "Ctrl-C to reach sleep", func() bool { return sleepers("3366") == 0 })
	term.typ("exit 9\n")
	if code := term.wait(); code != 9 {
		t.Errorf("exit %d, want 9", code)
	}
	// A client that disconnects ends its command.
	cmd := b.command("demesne", "ssh", "build", "exec sleep 3377")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "sleep to run", func() bool { return sleepers("3377") == 1 })
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the command to end with its client", func() bool { return sleepers("3377") == 0 })
}

// TestSSHFiles checks scp, sftp, rsync and git, and that links of the sandbox lead to files of the sandbox.
func TestSSHFiles(t *testing.T) {
	needGit(t)
	program(t, "rsync")
	b := newSSH(t)
	b.file("canary", canary, 0o644)
	b.file("src/run", "#!/bin/sh\necho it runs\n", 0o755)
	b.file("src/deep/er/file", strings.Repeat("0123456789abcdef", 100_000), 0o644)
	conf := []string{"-F", b.dir + "/config"}
	works := func(input, name string, args ...string) string {
		t.Helper()
		r := b.runs(input, name, args...)
		if r.code != 0 {
			t.Fatalf("%s %q: exit %d: %s%s", name, args, r.code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	inside := func(script string) string {
		t.Helper()
		return works("", "ssh", append(conf, "demesne-build", script)...)
	}
	works("", "scp", append(conf, "-rp", b.dir+"/src", "demesne-build:")...)
	if got := inside("src/run; sha256sum < src/deep/er/file"); got != works("", "sh", "-c", "sh "+b.dir+"/src/run; sha256sum < "+b.dir+"/src/deep/er/file") {
		t.Errorf("scp: %q", got)
	}
	works("", "scp", append(conf, "-rp", "demesne-build:src", b.dir+"/back")...)
	works("", "diff", "-r", b.dir+"/src", b.dir+"/back")
	works("", "scp", append(conf, "-O", "demesne-build:/workspace/src/run", b.dir+"/legacy")...) // scp's own protocol
	works("", "rsync", "-rlpt", "-e", "demesne ssh", b.dir+"/src/", "build:/workspace/synced/")
	works("", "rsync", "-rlpt", "--delete", "-e", "demesne ssh", "build:synced/", b.dir+"/synced/")
	works("", "diff", "-r", b.dir+"/src", b.dir+"/synced")

	inside("ln -s " + b.dir + "/canary link; ln -s / root; ln -s ../../../../../.." + b.dir + " up; mkfifo fifo; : > plain; chmod 600 plain")
	batch := func(lines ...string) result {
		return b.runs(strings.Join(lines, "\n"), "sftp", append(conf, "-q", "-b", "-", "demesne-build")...)
	}
	if r := batch("pwd", "mkdir d", "put "+b.dir+"/canary d/x", "rename d/x d/y", "chmod 640 d/y", "ls -l d", "ln -s y d/l", "ls d", "rm d/y", "rm d/l", "rmdir d", "df"); r.code != 0 ||
		!strings.Contains(r.stdout, "/workspace") || !strings.Contains(r.stdout, "-rw-r-----") {
		t.Errorf("sftp: %+v", r)
	}
	for _, refused := range []string{"get link " + b.dir + "/x", "get up/canary " + b.dir + "/x", "get root" + b.dir + "/canary " + b.dir + "/x", "get fifo " + b.dir + "/x", "rmdir plain", "rm src", "rmdir src", "mkdir src", "ls none"} {
		if r := batch(refused); r.code == 0 {
			t.Errorf("sftp %s: %+v", refused, r)
		}
	}
	if _, err := os.Stat(b.dir + "/x"); err == nil {
		t.Error("a link of the sandbox led to a file of the host")
	}

	inside("git init -q repo && cd repo && git -c user.email=a@b.test -c user.name=a commit -q --allow-empty -m one")
	b.extra = append(b.extra, "GIT_SSH_COMMAND=demesne ssh", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	works("", "git", "clone", "-q", "build:/workspace/repo", b.dir+"/clone")
	works("", "git", "-C", b.dir+"/clone", "push", "-q", "origin", "HEAD:refs/heads/pushed")
	if got := inside("git -C repo branch"); !strings.Contains(got, "pushed") {
		t.Errorf("git push: %q", got)
	}
}

// answering is a program for a sandbox that answers each connection to a port.
func answering(port int, text string) string {
	return fmt.Sprintf(`nohup python3 -c '
import socket
s = socket.create_server(("127.0.0.1", %d))
while True:
    c, _ = s.accept()
    c.sendall(b"%s"); c.close()' >/dev/null 2>&1 &`, port, text)
}

// TestSSHForward checks forwarding to ports of the sandbox, and what is refused: other addresses, -R, and the agent unless
// asked for.
func TestSSHForward(t *testing.T) {
	program(t, "python3")
	b := newSSH(t)
	if r := b.demesne("ssh", "build", answering(8000, "inside")); r.code != 0 {
		t.Fatal(r)
	}
	port := freePort(t)
	forward := b.command("demesne", "ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", port+":localhost:8000", "build")
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer forward.Wait()
	defer forward.Process.Kill()
	eventually(t, "the forwarded port to answer", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		got, _ := io.ReadAll(c)
		return string(got) == "inside"
	})
	if r := b.demesne("ssh", "-W", "127.0.0.1:8000", "build"); r.stdout != "inside" {
		t.Errorf("-W: %+v", r)
	}
	for _, c := range []struct{ want, line string }{
		{"only ports of the sandbox itself", "ssh -W 192.0.2.1:80 build"},
		{"only ports of the sandbox itself", "ssh -W localhost.example.test:80 build"},
		{"-R is refused", "ssh -o ExitOnForwardFailure=yes -R 1234:localhost:22 build true"},
		{"-R is refused", "ssh -o ExitOnForwardFailure=yes -R /tmp/s:localhost:22 build true"},
	} {
		if r := b.demesne(strings.Fields(c.line)...); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
	program(t, "ssh-agent")
	socket := b.dir + "/a"
	key := b.dir + "/key"
	agent := b.command(program(t, "ssh-agent"), "-D", "-a", socket)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer agent.Wait()
	defer agent.Process.Kill()
	eventually(t, "the agent to listen", func() bool { // the socket is there before it listens
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	b.extra = append(b.extra, "SSH_AUTH_SOCK="+socket)
	if r := b.runs("", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of-the-test", "-f", key); r.code != 0 {
		t.Fatal(r)
	}
	if r := b.runs("", "ssh-add", key); r.code != 0 {
		t.Fatal(r)
	}
	if r := b.demesne("ssh", "-A", "build", "ssh-add -l"); r.code == 0 || !strings.Contains(r.stderr, "agent forwarding is refused") || strings.Contains(r.stdout, "of-the-test") {
		t.Errorf("agent: %+v", r)
	}
	if r := b.demesne("ssh", "--forward-agent", "-A", "build", "ssh-add -l && ssh-add -l"); r.code != 0 || strings.Count(r.stdout, "of-the-test") != 2 {
		t.Errorf("agent that was asked for: %+v", r)
	}
	// A request that is too long ends the agent of the sandbox, and nothing else.
	long := `python3 -c 'import os,socket; s=socket.socket(socket.AF_UNIX); s.connect(os.environ["SSH_AUTH_SOCK"]); s.sendall(b"\xff\xff\xff\xff"+b"x"*70000); print(len(s.recv(9)))'; echo done`
	if r := b.demesne("ssh", "--forward-agent", "-A", "build", long); !strings.HasSuffix(r.stdout, "done\n") {
		t.Errorf("long request: %+v", r)
	}
}

// TestSSHEditor makes the calls of VS Code's remote server in its order. The server itself is a download: a script stands in
// for it.
func TestSSHEditor(t *testing.T) {
	program(t, "python3")
	b := newSSH(t)
	socks := freePort(t)
	// One connection carries all: -T -D PORT HOST sh, with the installer on stdin.
	cmd := b.command(program(t, "ssh"), "-F", b.dir+"/config", "-v", "-T", "-D", socks, "-o", "ConnectTimeout=15", "demesne-build", "bash")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	// The installer: facts of the machine, a directory below the home, an archive from stdin or by scp, a server that is
	// detached and writes its port into a log, and markers around what the editor parses.
	io.WriteString(in, `
export VSCODE_AGENT_FOLDER="$HOME/.vscode-server"
echo "start: $(uname -m) $(uname -s) $(id -u) ${SHELL:-none}"
mkdir -p "$VSCODE_AGENT_FOLDER/bin" && cd "$VSCODE_AGENT_FOLDER" && umask 077
for tool in tar gzip sed grep cat ps kill nohup; do command -v $tool >/dev/null || echo "no $tool"; done
cat > server.py <<'END'
import socket
s = socket.create_server(("127.0.0.1", 0))
print("Extension host agent listening on", s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()
END
tar czf s.tgz server.py && rm server.py && tar xzf s.tgz
nohup python3 server.py > log 2>&1 < /dev/null &
echo $! > pid
until grep -q listening log; do sleep 0.05; done
echo "listeningOn==$(sed -n 's/.*listening on //p' log)=="
echo "exitCode==0=="
`)
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "exitCode==0==") {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v: %s", err, seen.String())
		}
	}
	_, port, _ := strings.Cut(seen.String(), "listeningOn==")
	port, _, _ = strings.Cut(port, "==")
	if strings.Contains(seen.String(), "no ") || port == "" {
		t.Fatalf("installer: %s", seen.String())
	}
	curl := func() string {
		c := exec.Command(program(t, "python3"), "-c", `
import socket, struct, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(b"\x05\x01\x00"); c.recv(2)
c.sendall(b"\x05\x01\x00\x03\x09localhost" + struct.pack(">H", int(sys.argv[2]))); c.recv(10)
c.sendall(b"hello editor"); print(c.recv(100).decode())`, socks, port)
		got, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("by SOCKS: %v", err)
		}
		return strings.TrimSpace(string(got))
	}
	if got := curl(); got != "HELLO EDITOR" {
		t.Errorf("by SOCKS: %q", got)
	}
	in.Close()
	cmd.Wait()
	// The next window finds the server that the last one left.
	if r := b.demesne("ssh", "build", `kill -0 $(cat ~/.vscode-server/pid) && echo alive`); r.stdout != "alive\n" {
		t.Errorf("the server ended with its first connection: %+v", r)
	}
}
