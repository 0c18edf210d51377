package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pty with a program on it, as on a user's terminal.
type terminal struct {
	testing.TB
	master, slave *os.File
	cmd           *exec.Cmd
	mu            sync.Mutex
	seen          bytes.Buffer
	more          chan struct{} // closed when seen grows; then another takes its place
	all           chan struct{} // closed when all output is read and the terminal is closed
}

func (b *box) terminal(args ...string) *terminal {
	b.Helper()
	return b.terminalOf(b.command("demesne", args...))
}

func (b *box) terminalOf(cmd *exec.Cmd) *terminal {
	b.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		b.Fatal(err)
	}
	unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		b.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		b.Fatal(err)
	}
	t := &terminal{TB: b.TB, master: master, slave: slave, cmd: cmd, more: make(chan struct{}), all: make(chan struct{})}
	t.resize(24, 80)
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = slave, slave, slave
	t.cmd.SysProcAttr.Setsid, t.cmd.SysProcAttr.Setctty = true, true
	if err := t.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go t.read()
	b.Cleanup(func() { master.Close(); slave.Close() })
	return t
}

func (t *terminal) read() {
	defer close(t.all)
	buf := make([]byte, 4096)
	for {
		n, err := t.master.Read(buf)
		t.mu.Lock()
		t.seen.Write(buf[:n])
		close(t.more)
		t.more = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (t *terminal) resize(rows, cols uint16) {
	unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

func (t *terminal) screen() string { t.mu.Lock(); defer t.mu.Unlock(); return t.seen.String() }

// expect waits for text on the terminal. The terminal echoes input, so text must not be part of what was typed.
func (t *terminal) expect(text string) {
	t.Helper()
	late := time.After(patience)
	for ended := false; ; {
		t.mu.Lock()
		found, more := bytes.Contains(t.seen.Bytes(), []byte(text)), t.more
		t.mu.Unlock()
		switch {
		case found:
			return
		case ended:
			t.Fatalf("no %q on the terminal:\n%q", text, t.screen())
		}
		select {
		case <-more:
		case <-t.all:
			ended = true
		case <-late:
			ended = true
		}
	}
}

func (t *terminal) typ(text string) { t.master.WriteString(text) }

// wait waits for the end of the program, and returns its exit code.
func (t *terminal) wait() int { t.Helper(); return t.leave("") }

// leave types keys twice, one press after the other, until the program has ended, and returns its exit code. A program that is busy may
// read two presses as one, so they are typed again.
func (t *terminal) leave(keys string) int {
	t.Helper()
	done := make(chan struct{})
	go func() {
		t.cmd.Wait()
		t.slave.Close()
		<-t.all
		close(done)
	}()
	late := time.After(patience)
	for pause := 300 * time.Millisecond; ; pause += 300 * time.Millisecond {
		for _, pause := range []time.Duration{pause, 10 * time.Second} {
			t.typ(keys)
			select {
			case <-done:
				return t.cmd.ProcessState.ExitCode()
			case <-late:
				t.Fatalf("still running; the terminal says:\n%q", t.screen())
			case <-time.After(pause):
			}
		}
	}
}

func TestPTY(t *testing.T) {
	b := newBox(t)
	term := b.terminal("run", "-it", "--", "sh")
	term.typ("tty; stty size; echo $((40+2))\n")
	term.expect("24 80")
	term.expect("/dev/pts/")
	term.resize(50, 132)
	eventually(t, "the new size to arrive", func() bool {
		term.typ("stty size\n")
		return strings.Contains(term.screen(), "50 132")
	})
	term.typ("exit 9\n")
	if code := term.wait(); code != 9 {
		t.Errorf("exit %d, want 9", code)
	}
}

// TestPTYInterruptAndJobControl checks that Ctrl-C reaches the sandbox's terminal as a byte, which turns it into
// a signal for the foreground process group.
func TestPTYInterruptAndJobControl(t *testing.T) {
	b := newBox(t)
	term := b.terminal("run", "-it", "--", "bash", "--norc", "-i")
	// Wait for each program to run: an earlier key would go to the shell, or be lost.
	term.typ("sleep 3355; echo after $?\n")
	eventually(t, "sleep to run", func() bool { return sleepers("3355") == 1 })
	term.typ("\x03")
	eventually(t, "Ctrl-C to reach sleep", func() bool { return sleepers("3355") == 0 })
	term.typ("cat\n")
	eventually(t, "cat to run", func() bool { return len(named("cat")) == 1 })
	term.typ("\x1a")
	term.expect("Stopped")
	term.typ("kill %1; jobs; exit 4\n")
	term.typ("exit 4\n")
	if code := term.wait(); code != 4 {
		t.Errorf("exit %d, want 4", code)
	}
}

// TestPTYJobOfAShell checks that a run behaves like any job of the caller's shell. Ctrl-Z stops it, and Ctrl-C
// ends it. In the background it stops when it needs the terminal, with and without a terminal of its own.
func TestPTYJobOfAShell(t *testing.T) {
	b := newBox(t)
	term := b.terminalOf(b.command(program(t, "bash"), "--norc", "-i"))
	demesne := bin + "/demesne run "
	// Input is lost if it is typed while the terminal changes its foreground group.
	prompt := func() {
		t.Helper()
		eventually(t, "a prompt", func() bool { return strings.HasSuffix(term.screen(), "# ") || strings.HasSuffix(term.screen(), "$ ") })
	}
	prompt()
	out := b.mkdir("o")
	term.typ(demesne + "--out " + out + " -c 'echo be''gun; until test -e /out/go; do sleep 0.05; done; echo fin''ished'\n")
	term.expect("begun")
	term.typ("\x1a")
	term.expect("Stopped")
	prompt()
	term.typ("fg\n")
	b.file("o/go", "", 0o644)
	term.expect("finished")
	prompt()
	term.typ(demesne + "-it -- sh -c 'echo sh''own; read line; echo go''t $line' &\n")
	eventually(t, "the background to stop at the terminal", func() bool {
		prompt()
		term.typ("jobs -s\n")
		return strings.Count(term.screen(), "Stopped") > 1
	})
	prompt()
	term.typ("fg\n")
	term.expect("shown")
	term.typ("it\n")
	term.expect("got it")
	prompt()
	term.typ(demesne + "-c 'echo wai''ting; exec sleep 1000'; echo co''de $?\n")
	term.expect("waiting")
	term.typ("\x03")
	term.expect("code 130")
	prompt()
	term.typ("exit\n")
	term.wait()
}

// TestPTYRestored checks that the caller's terminal leaves raw mode again, even after a kill in the sandbox.
func TestPTYRestored(t *testing.T) {
	b := newBox(t)
	term := b.terminal("run", "-it", "--", "sh", "-c", "echo read''y; stty raw -echo; kill -KILL $$")
	before, err := unix.IoctlGetTermios(int(term.master.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if code := term.wait(); code != 137 {
		t.Errorf("exit %d, want 137", code)
	}
	after, err := unix.IoctlGetTermios(int(term.master.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if after.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != unix.ICANON|unix.ECHO|unix.ISIG {
		t.Errorf("the terminal was left raw: before %x, after %x", before.Lflag, after.Lflag)
	}
}

// TestPTYWithoutTerminal checks -t without a terminal: the command gets a terminal, and its output arrives.
func TestPTYWithoutTerminal(t *testing.T) {
	b := newBox(t)
	r := b.demesne("run", "-t", "--", "sh", "-c", "test -t 0 && test -t 1 && echo yes")
	if r.code != 0 || strings.TrimSpace(r.stdout) != "yes" {
		t.Errorf("run -t without a terminal: %+v", r)
	}
}

// TestEscapeP4TerminalInjection checks that TIOCSTI and TIOCLINUX are refused on the sandbox's own terminal, with
// and without high bits set (P4). The caller's terminal is not accessible at all.
func TestEscapeP4TerminalInjection(t *testing.T) {
	b := newBox(t)
	for _, flags := range [][]string{{"-it"}, {"-i"}, {}} {
		args := append(append([]string{"run"}, flags...), "--in", tools+"/tiocsti", "--", "/in/tiocsti")
		term := b.terminal(args...)
		if code := term.wait(); code != 0 {
			t.Errorf("%v: exit %d: %q", flags, code, term.screen())
		}
		if strings.Contains(term.screen(), "INJECTED") {
			t.Errorf("%v: the caller's terminal was typed into: %q", flags, term.screen())
		}
	}
}
