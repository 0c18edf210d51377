package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// start runs bare, the program without sandboxes, and waits for its command to say
// ready.
func start(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
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

// code waits for cmd, whose output was read by others, and returns its exit code.
func code(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
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
		if c := code(t, cmd); c != 7 {
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
	if c := code(t, cmd); c != 137 {
		t.Errorf("exit %d", c)
	}
}

// A hang-up that the caller ignores, as under nohup, is not forwarded.
func TestNohup(t *testing.T) {
	cmd, out := start(t, "run", "-c", "echo ready; read x; exit 5")
	_ = out
	if c := code(t, cmd); c != 5 {
		t.Errorf("exit %d", c)
	}
	sh := exec.Command("sh", "-c", `trap '' HUP; exec bare run -c 'echo ready; sleep 0.5; exit 6'`)
	sh.Env = append(os.Environ(), "HOME="+t.TempDir())
	o, _ := sh.StdoutPipe()
	sh.Start()
	bufio.NewReader(o).ReadString('\n')
	sh.Process.Signal(unix.SIGHUP)
	if c := code(t, sh); c != 6 {
		t.Errorf("exit %d", c)
	}
}

// A caller that reads nothing is waited for, unless something else ended the command.
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
	if c := code(t, cmd); c != exitTimedOut {
		t.Errorf("timed out, and nobody reads: exit %d", c)
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
	time.Sleep(patience + 500*time.Millisecond)
	if n, _ := io.Copy(io.Discard, r2); n != 100000 {
		t.Errorf("%d of 100000 bytes reached a slow reader", n)
	}
	if c := code(t, cmd); c != 0 {
		t.Errorf("exit %d", c)
	}
}

// The caller's own descriptors keep their flags, and may be non-blocking.
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
	fd := fdOf(w)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true) // what os/exec handed on was made blocking
	time.Sleep(300 * time.Millisecond)
	if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); flags&unix.O_NONBLOCK == 0 {
		t.Error("O_NONBLOCK was taken off the caller's pipe")
	}
	w.Close()
	if n, _ := io.Copy(io.Discard, r); n != 3<<20 {
		t.Errorf("%d bytes", n)
	}
	if c := code(t, cmd); c != 0 {
		t.Errorf("exit %d", c)
	}
}

// aTerminal is a pty with bare on it, as a person's would be.
type aTerminal struct {
	*testing.T
	master, slave *os.File
	cmd           *exec.Cmd
	mu            sync.Mutex
	seen          bytes.Buffer
}

func onTerminal(t *testing.T, args ...string) *aTerminal {
	t.Helper()
	p := &bareProcess{}
	slave, err := p.openTerminal(runner.Winsize{Rows: 50, Cols: 120})
	if err != nil {
		t.Skipf("needs /dev/ptmx: %v", err)
	}
	a := &aTerminal{T: t, master: p.tty, slave: slave, cmd: exec.Command("bare", args...)}
	a.cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "TERM=vt220")
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = slave, slave, slave
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.cmd.Process.Kill(); a.cmd.Wait(); a.master.Close(); slave.Close() })
	go a.read()
	return a
}

// read ends when the terminal is closed.
func (a *aTerminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := a.master.Read(buf)
		a.mu.Lock()
		a.seen.Write(buf[:n])
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (a *aTerminal) screen() string { a.mu.Lock(); defer a.mu.Unlock(); return a.seen.String() }

func (a *aTerminal) expect(text string) {
	a.Helper()
	for range 1000 {
		if strings.Contains(a.screen(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.Fatalf("no %q on the terminal: %q", text, a.screen())
}

func (a *aTerminal) modes() unix.Termios {
	m, err := unix.IoctlGetTermios(fdOf(a.slave), unix.TCGETS)
	if err != nil {
		a.Fatal(err)
	}
	return *m
}

func TestTerminal(t *testing.T) {
	a := onTerminal(t, "run", "-it", "-c", `stty size; echo "<$TERM>"; trap 'echo in''terrupted' INT; trap 'stty size' WINCH; until [ "$x" = bye ]; do read x && echo "[$x]"; done; exit 9`)
	a.expect("50 120")
	a.expect("<vt220>")
	a.master.WriteString("typed\n")
	a.expect("[typed]")
	// Ctrl-C is a byte here, and a signal only inside.
	if m := a.modes(); m.Lflag&unix.ISIG != 0 {
		t.Error("the caller's terminal is not raw")
	}
	a.master.WriteString("\x03")
	a.expect("interrupted")
	unix.IoctlSetWinsize(fdOf(a.master), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77})
	a.master.WriteString("\n") // a shell runs its traps between commands
	a.expect("33 77")
	a.master.WriteString("bye\n")
	if c := code(t, a.cmd); c != 9 {
		t.Errorf("exit %d", c)
	}
	if m := a.modes(); m.Lflag&(unix.ISIG|unix.ICANON|unix.ECHO) != unix.ISIG|unix.ICANON|unix.ECHO {
		t.Error("the caller's terminal was left raw")
	}
}

// However the command ends, the caller's terminal is as it was.
func TestTerminalRestored(t *testing.T) {
	for _, script := range []string{"kill -KILL $$", "stty raw -echo; exit 3", "printf '%0100000d' 0", "sleep 2 & exit 0"} {
		a := onTerminal(t, "run", "-it", "-c", script)
		before := a.modes()
		code(t, a.cmd)
		if after := a.modes(); after.Lflag&^unix.EXTPROC != before.Lflag || after.Oflag != before.Oflag || after.Iflag != before.Iflag {
			// before may have been read when it was raw already
			if after.Lflag&unix.ICANON == 0 {
				t.Errorf("%s: left raw", script)
			}
		}
	}
}

// Signals from outside reach a command on a terminal, and end a caller that is
// still making its sandbox.
func TestTerminalSignal(t *testing.T) {
	a := onTerminal(t, "run", "-it", "-c", "trap 'echo ter''minated; exit 4' TERM; echo rea''dy; while :; do sleep 0.02; done")
	a.expect("ready")
	a.cmd.Process.Signal(unix.SIGTERM)
	a.expect("terminated")
	if c := code(t, a.cmd); c != 4 {
		t.Errorf("exit %d", c)
	}
	for i := range 3 {
		a := onTerminal(t, "run", "-it", "-c", "trap '' INT TERM; echo rea''dy; while :; do sleep 0.02; done")
		a.expect("ready")
		for range 3 {
			a.cmd.Process.Signal([]os.Signal{unix.SIGINT, unix.SIGTERM}[i%2])
			time.Sleep(20 * time.Millisecond)
		}
		if c := code(t, a.cmd); c != 137 && c != 130 && c != 143 {
			t.Errorf("exit %d", c)
		}
		if a.modes().Lflag&unix.ICANON == 0 {
			t.Error("left raw")
		}
	}
}
