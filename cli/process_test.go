package cli

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/fsutil"
)

// start runs bare, the program without sandboxes, and waits until its command prints "ready".
func start(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	heedHangUp(t)
	cmd := exec.Command("bare", args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		t.Fatalf("said %q: %v", line, err)
	}
	return cmd, r
}

// heedHangUp lets programs started later receive SIGHUP, even if these tests run under nohup.
func heedHangUp(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}

// exitCode waits for cmd and returns its exit code; the test reads cmd's output elsewhere.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("still running")
	}
	return cmd.ProcessState.ExitCode()
}

func TestSignalsAreForwarded(t *testing.T) {
	for _, s := range []struct {
		sig  syscall.Signal
		name string
	}{{unix.SIGINT, "INT"}, {unix.SIGTERM, "TERM"}, {unix.SIGHUP, "HUP"}, {unix.SIGQUIT, "QUIT"}, {unix.SIGUSR1, "USR1"}, {unix.SIGUSR2, "USR2"}} {
		cmd, out := start(t, "run", "-c", "trap 'echo got; exit 7' "+s.name+"; echo ready; while :; do sleep 0.02; done")
		cmd.Process.Signal(s.sig)
		if line, _ := out.ReadString('\n'); line != "got\n" {
			t.Errorf("%s: said %q", s.name, line)
		}
		if c := exitCode(t, cmd); c != 7 {
			t.Errorf("%s: exit %d", s.name, c)
		}
	}
}

func TestSecondInterruptKills(t *testing.T) {
	cmd, out := start(t, "run", "-c", "trap 'echo got' INT; echo ready; while :; do sleep 0.02; done")
	cmd.Process.Signal(unix.SIGINT)
	if line, _ := out.ReadString('\n'); line != "got\n" {
		t.Errorf("said %q", line)
	}
	cmd.Process.Signal(unix.SIGINT)
	if c := exitCode(t, cmd); c != 137 {
		t.Errorf("exit %d", c)
	}
}

// TestNohup checks that a SIGHUP that the caller ignores, as under nohup, is not forwarded.
func TestNohup(t *testing.T) {
	cmd, out := start(t, "run", "-c", "echo ready; read x; exit 5")
	_ = out
	if c := exitCode(t, cmd); c != 5 {
		t.Errorf("exit %d", c)
	}
	sh := exec.Command("sh", "-c", `trap '' HUP; exec bare run -c 'echo ready; sleep 0.5; exit 6'`)
	sh.Env = append(os.Environ(), "HOME="+t.TempDir())
	o, _ := sh.StdoutPipe()
	sh.Start()
	bufio.NewReader(o).ReadString('\n')
	sh.Process.Signal(unix.SIGHUP)
	if c := exitCode(t, sh); c != 6 {
		t.Errorf("exit %d", c)
	}
}

// TestUnreadOutput checks that demesne does not wait for a caller that reads nothing if a timeout ended the
// command.
func TestUnreadOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("bare", "run", "--timeout", "300ms", "--", "yes")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if c := exitCode(t, cmd); c != app.ExitTimedOut {
		t.Errorf("timed out without a reader: exit %d", c)
	}

	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	cmd = exec.Command("bare", "run", "--", "head", "-c", "100000", "/dev/zero")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stdout = w2
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w2.Close()
	time.Sleep(stream.Patience + 500*time.Millisecond) // what is tested: a reader that is slower than the patience
	if n, _ := io.Copy(io.Discard, r2); n != 100000 {
		t.Errorf("%d of 100000 bytes reached a slow reader", n)
	}
	if c := exitCode(t, cmd); c != 0 {
		t.Errorf("exit %d", c)
	}
}

// TestNonblockingCaller checks that the caller's own descriptors keep their flags, and may be non-blocking.
func TestNonblockingCaller(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("bare", "run", "-i", "--", "cat")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stdin = strings.NewReader(strings.Repeat("x", 3<<20))
	cmd.Stdout = w
	fd := stream.FD(w)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true) // os/exec passed on a blocking descriptor
	for n, end := 0, time.Now().Add(time.Minute); n == 0 && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		n, _ = unix.IoctlGetInt(stream.FD(r), unix.TIOCINQ) // once it writes, it has set up its descriptors
	}
	if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); flags&unix.O_NONBLOCK == 0 {
		t.Error("O_NONBLOCK was taken off the caller's pipe")
	}
	w.Close()
	if n, _ := io.Copy(io.Discard, r); n != 3<<20 {
		t.Errorf("%d bytes", n)
	}
	if c := exitCode(t, cmd); c != 0 {
		t.Errorf("exit %d", c)
	}
}

// TestPullInterrupted checks that Ctrl-C during a slow pull exits with 130 at once, and leaves no output
// directory.
func TestPullInterrupted(t *testing.T) {
	for _, args := range [][]string{{"pull", "python"}, {"run", "--image", "python", "--", "true"}, {"create", "--image", "python"}} {
		dir := t.TempDir()
		cmd := exec.Command("bare", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "DEMESNE_IMAGE_STORE="+dir+"/images", "HANDS_FAIL=pull:slow")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !fsutil.Exists(filepath.Join(dir, "pulling")) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		cmd.Process.Signal(unix.SIGINT)
		if c := exitCode(t, cmd); c != stream.ExitSignal+int(unix.SIGINT) || out.Len() > 0 {
			t.Errorf("%q: exit %d, %q", args, c, &out)
		}
		if fsutil.Exists(dir + "/.demesne/out") {
			t.Errorf("%q left an output directory", args)
		}
	}
}
