package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// openTerminal returns a terminal of holder "a", and its inner end.
func openTerminal(t *testing.T) (*terminal[string], *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	var n uint32
	err = controlFile(master, func(fd uintptr) (err error) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetUint32(int(fd), unix.TIOCGPTN)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	term := newTerminal(master, "a")
	t.Cleanup(func() { inner.Close(); term.close() })
	return term, inner
}

// TestTerminalHolders checks that a terminal has one holder at a time, and that only the holder can leave it.
func TestTerminalHolders(t *testing.T) {
	term, _ := openTerminal(t)
	if _, ok := term.take("b"); ok {
		t.Error("b took the terminal of a")
	}
	term.leave("b")
	if _, ok := term.take("b"); ok {
		t.Error("b took the terminal of a, after b left it")
	}
	term.leave("a")
	if _, ok := term.take("b"); !ok {
		t.Error("b could not take a terminal without a holder")
	}
	if _, ok := term.take("a"); ok {
		t.Error("a took the terminal of b")
	}
}

// TestTerminalRecent checks that output without a holder blocks no command, and that the next holder gets its end.
func TestTerminalRecent(t *testing.T) {
	term, inner := openTerminal(t)
	term.leave("a")
	line := append(bytes.Repeat([]byte("x"), 1021), '\n') // 1023 bytes of output: the terminal adds a \r
	for range 4 * scrollback / len(line) {
		if _, err := inner.Write(line); err != nil { // more than the terminal's buffer holds
			t.Fatal(err)
		}
	}
	inner.WriteString("end\n")
	var recent []byte
	for !bytes.HasSuffix(recent, []byte("end\r\n")) { // the reader may be behind
		more, ok := term.take("b")
		if !ok {
			t.Fatal("the terminal is taken")
		}
		recent = append(recent, more...)
		term.leave("b")
	}
	if len(recent) > 3*scrollback {
		t.Errorf("%d bytes were kept", len(recent))
	}
	term.take("c")
	own, err := term.dup()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	inner.WriteString("direct")
	got := make([]byte, 6)
	if _, err := io.ReadFull(own, got); err != nil || string(got) != "direct" {
		t.Errorf("the holder reads %q, %v", got, err)
	}
}

func TestTerminalResize(t *testing.T) {
	term, inner := openTerminal(t)
	if err := term.resize(runner.Winsize{Rows: 7, Cols: 9}); err != nil {
		t.Fatal(err)
	}
	if w, err := unix.IoctlGetWinsize(int(inner.Fd()), unix.TIOCGWINSZ); err != nil || w.Row != 7 || w.Col != 9 {
		t.Errorf("%+v, %v", w, err)
	}
}
