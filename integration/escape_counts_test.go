package integration

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hog takes as much as it can of the resources that the kernel counts per user of the whole machine, and keeps
// it.
const hog = `
import ctypes, array, socket, time
while ctypes.CDLL(None).inotify_init() >= 0: pass
kept, rights = [], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 250))]
try:
    while True:
        kept.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        kept[-1][0].setblocking(False)
        try:
            while True: kept[-1][0].sendmsg([b"x"], rights)
        except BlockingIOError: pass
except OSError: pass
print("all", flush=True)
time.sleep(600)`

// TestEscapeP11Counts checks that a sandbox cannot use up its user's share of file descriptors in flight and
// inotify instances (P11). Its runner and its caller still get theirs.
func TestEscapeP11Counts(t *testing.T) {
	b := newBox(t)
	program(t, "python3")
	limited := func(args ...string) []string {
		return append([]string{"-c", `ulimit -n 4096; exec "$0" "$@"`, bin + "/demesne"}, args...)
	}
	if r := b.finish(b.command("/bin/sh", limited("create", "--name", "hog")...)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	t.Cleanup(func() { b.demesne("rm", "hog") })
	cmd := b.command("/bin/sh", limited("exec", "hog", "--", "python3", "-c", hog)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "all\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if r := b.finish(b.command("/bin/sh", limited("exec", "hog", "--", "echo", "served")...)); strings.TrimSpace(r.stdout) != "served" {
		t.Errorf("the runner: %+v", r)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if unix.Close(fd); err != nil && !errors.Is(err, unix.ENOSYS) {
		t.Errorf("its caller: inotify_init: %v", err)
	}
}
