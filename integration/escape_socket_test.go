package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEscapeP9RunnerSocket checks that the runner serves only callers that show its own user namespace (P9). A
// process in a sandbox has another one, so the socket is useless even to a process that reaches it.
func TestEscapeP9RunnerSocket(t *testing.T) {
	b := newBox(t)
	b.create()
	socks, err := filepath.Glob(b.run + "/demesne/*.sock")
	if err != nil || len(socks) != 1 {
		t.Fatalf("sockets: %v, %v", socks, err)
	}
	inner := exec.Command("sleep", "30")
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL}
	if err := inner.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		inner.Process.Kill()
		inner.Wait()
	}()
	for _, c := range []struct {
		name, file string
		served     bool
	}{
		{"callers' own user namespace", "/proc/self/ns/user", true},
		{"another user namespace", "/proc/" + strconv.Itoa(inner.Process.Pid) + "/ns/user", false},
		{"another kind of namespace", "/proc/self/ns/mnt", false},
		{"no namespace at all", "/dev/null", false},
		{"nothing", "", false},
	} {
		if got := introduce(t, socks[0], c.file); got != c.served {
			t.Errorf("%s: served: %t, want %t", c.name, got, c.served)
		}
	}
}

// introduce sends the client's hello (package ipc documents the packet), and reports whether the runner answered
// before it hung up.
func introduce(t *testing.T, sock, file string) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: sock}); err != nil {
		t.Fatal(err)
	}
	packet, rights := "\x00{\"op\":\"hello\"}", []byte(nil)
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		packet, rights = "\x00{\"op\":\"hello\",\"files\":[\"userns\"]}", unix.UnixRights(int(f.Fd()))
	}
	if err := unix.Sendmsg(fd, []byte(packet), rights, nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
	n, err := unix.Read(fd, make([]byte, 4096))
	if err == unix.EAGAIN {
		t.Fatalf("%s: no answer and no end", file)
	}
	return n > 0
}

// TestEscapeF1RunDirectory checks that a directory that contains the run directory is refused under any name:
// connect(2) works through a read-only mount (F1).
func TestEscapeF1RunDirectory(t *testing.T) {
	b := newBox(t)
	link := filepath.Join(b.dir, "link")
	if err := os.Symlink(b.dir, link); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"--in", b.run}, {"--in", b.dir + ":x"}, {"--in", link + ":x"}, {"--in", "/:x"},
		{"--workspace", b.run}, {"--out", b.run}, {"--in", b.run + "/demesne:x"},
	} {
		r := b.demesne(append(append([]string{"run"}, flags...), "--", "true")...)
		if r.code != 125 || !strings.HasPrefix(r.stderr, "demesne: run: ") {
			t.Errorf("%q: exit %d, %q", flags, r.code, r.stderr)
		}
	}
	// Directories beside the run directory are accepted.
	if err := os.Mkdir(filepath.Join(b.dir, "beside"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := b.demesne("run", "--in", filepath.Join(b.dir, "beside"), "--", "true"); r.code != 0 {
		t.Errorf("beside: %+v", r)
	}
}

// TestEscapeOtherUsers checks that other users of the machine cannot connect to a runner, whatever the caller's
// umask. They cannot connect to an MCP server on the loopback without a token either.
func TestEscapeOtherUsers(t *testing.T) {
	b := newBox(t)
	b.finish(b.command("/bin/sh", "-c", `umask 0; exec "$0" create --name open`, bin+"/demesne"))
	t.Cleanup(func() { b.demesne("rm", "open") })
	socks, _ := filepath.Glob(b.run + "/demesne/*.sock")
	if len(socks) != 1 {
		t.Fatalf("sockets: %v", socks)
	}
	if st, err := os.Stat(socks[0]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the runner's socket: %v, %v", st.Mode(), err)
	}
	if os.Getuid() != 0 {
		return // root is needed to become another user
	}
	addr, _ := b.web("--http", "127.0.0.1:0")
	ask := `exec 3<>/dev/tcp/` + strings.Replace(addr, ":", "/", 1) + ` && printf 'GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 && cat <&3`
	if r := b.finish(b.command("/bin/bash", "-c", ask)); !strings.HasPrefix(r.stdout, "HTTP/1.") {
		t.Errorf("the user's own process: %+v", r)
	}
	stranger := b.command("/bin/bash", "-c", ask)
	stranger.SysProcAttr.Credential = &syscall.Credential{Uid: 54321, Gid: 54321}
	if r := b.finish(stranger); r.stdout != "" {
		t.Errorf("another user's: %+v", r)
	}
}
