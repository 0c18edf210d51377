package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/internal/need"
)

// aTerminal is a pty on which bare runs, as on a user's terminal.
type aTerminal struct {
	*testing.T
	master, slave *os.File
	cmd           *exec.Cmd
	mu            sync.Mutex
	seen          bytes.Buffer
}

func onTerminal(t *testing.T, args ...string) *aTerminal {
	t.Helper()
	return onTerminalWith(t, nil, args...)
}

// onTerminalWith is onTerminal with variables of the environment.
func onTerminalWith(t *testing.T, env []string, args ...string) *aTerminal {
	t.Helper()
	return onTerminalIn(t, t.TempDir(), env, args...) // where bare writes files
}

func onTerminalIn(t *testing.T, dir string, env []string, args ...string) *aTerminal {
	t.Helper()
	master, slave := need.Terminal(t, 50, 120)
	a := &aTerminal{T: t, master: master, slave: slave, cmd: exec.Command("bare", args...)}
	a.cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "TERM=vt220", "NO_COLOR=")
	a.cmd.Env = append(a.cmd.Env, env...)
	a.cmd.Dir = dir
	a.cmd.Stdin, a.cmd.Stdout, a.cmd.Stderr = slave, slave, slave
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.cmd.Process.Kill(); a.cmd.Wait() })
	go a.read()
	return a
}

// read returns when the terminal is closed.
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
	for range 6000 {
		if strings.Contains(a.screen(), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.Fatalf("no %q on the terminal: %q", text, a.screen())
}

func (a *aTerminal) modes() unix.Termios {
	m, err := unix.IoctlGetTermios(stream.FD(a.slave), unix.TCGETS)
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
	// Ctrl-C is a byte here; only the terminal inside turns it into a signal.
	if m := a.modes(); m.Lflag&unix.ISIG != 0 {
		t.Error("the caller's terminal is not raw")
	}
	a.master.WriteString("\x03")
	a.expect("interrupted")
	unix.IoctlSetWinsize(stream.FD(a.master), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77})
	a.master.WriteString("\n") // a shell runs its traps between commands
	a.expect("33 77")
	a.master.WriteString("bye\n")
	if c := exitCode(t, a.cmd); c != 9 {
		t.Errorf("exit %d", c)
	}
	if m := a.modes(); m.Lflag&(unix.ISIG|unix.ICANON|unix.ECHO) != unix.ISIG|unix.ICANON|unix.ECHO {
		t.Error("the caller's terminal was left raw")
	}
}

// TestTerminalRestored checks that the caller's terminal is restored however the command ends.
func TestTerminalRestored(t *testing.T) {
	for _, script := range []string{"kill -KILL $$", "stty raw -echo; exit 3", "printf '%0100000d' 0", "sleep 2 & exit 0"} {
		a := onTerminal(t, "run", "-it", "-c", script)
		before := a.modes()
		exitCode(t, a.cmd)
		if after := a.modes(); after.Lflag&^unix.EXTPROC != before.Lflag || after.Oflag != before.Oflag || after.Iflag != before.Iflag {
			// before may have been read after the terminal became raw
			if after.Lflag&unix.ICANON == 0 {
				t.Errorf("%s: left raw", script)
			}
		}
	}
}

// TestTerminalSignal checks that signals from outside reach a command on a terminal, and end a caller that is
// still creating its sandbox.
func TestTerminalSignal(t *testing.T) {
	a := onTerminal(t, "run", "-it", "-c", "trap 'echo ter''minated; exit 4' TERM; echo rea''dy; while :; do sleep 0.02; done")
	a.expect("ready")
	a.cmd.Process.Signal(unix.SIGTERM)
	a.expect("terminated")
	if c := exitCode(t, a.cmd); c != 4 {
		t.Errorf("exit %d", c)
	}
	for i := range 3 {
		a := onTerminal(t, "run", "-it", "-c", "trap '' INT TERM; echo rea''dy; while :; do sleep 0.02; done")
		a.expect("ready")
		over := make(chan struct{})
		go func() { // two that arrive before the first is handled count as one
			for {
				a.cmd.Process.Signal([]os.Signal{unix.SIGINT, unix.SIGTERM}[i%2])
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		defer close(over)
		if c := exitCode(t, a.cmd); c != 137 && c != 130 && c != 143 {
			t.Errorf("exit %d", c)
		}
		if a.modes().Lflag&unix.ICANON == 0 {
			t.Error("left raw")
		}
	}
}

// TestOutputTold checks that the output's path is printed on a terminal only, and not if it is empty.
func TestOutputTold(t *testing.T) {
	a := onTerminal(t, "run", "--", "true")
	exitCode(t, a.cmd)
	if strings.Contains(a.screen(), "hint: ") {
		t.Errorf("told of an empty directory: %q", a.screen())
	}
	// bare has no /out: the command puts its file into the newest output directory.
	a = onTerminal(t, "run", "--env", "HOME", "-c", `touch "$HOME/.demesne/out/$(ls "$HOME/.demesne/out")/file"`)
	a.expect("hint: output is in ")
}

// TestTerminalEnd checks the end of input that is not a terminal. A shell gets the end whenever it starts to
// read, after the last line.
func TestTerminalEnd(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"echo $((40+2))\n":             "42",
		"echo $((40+2))":               "42", // without its newline
		"sleep 0.3\necho $((40+2))":    "42",
		"read x; echo \"<$?>\"":        "<1>",
		"cat; cat; echo $((40+2))\n":   "42",
		"stty raw; sleep 0.2; exit 42": "",
	} {
		for _, argv := range [][]string{{"bash", "--norc", "-i"}, {"sh"}} {
			cmd := exec.Command("bare", append([]string{"run", "-it", "--"}, argv...)...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			cmd.Stdin = strings.NewReader(in)
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			exitCode(t, cmd)
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q to %q: %q", in, argv, out.String())
			}
		}
	}
}

func TestEndOfFile(t *testing.T) {
	for _, c := range []struct {
		edited, midLine bool
		want            string
	}{{false, false, "\x04"}, {false, true, "\x04\x04"}, {true, false, "\x04"}, {true, true, "\r\x04"}} {
		if got := string(stream.EndOfFile(c.edited, c.midLine)); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
