package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/session"
)

// TestDetachKeys checks that typed bytes reach the command unchanged, except Ctrl-P Ctrl-Q, however reads split
// them.
func TestDetachKeys(t *testing.T) {
	const p, q = "\x10", "\x11"
	for _, c := range []struct {
		typed []string
		want  string
		left  bool
	}{
		{[]string{"ls\r"}, "ls\r", false},
		{[]string{"a" + p + q + "b"}, "a", true},
		{[]string{"a" + p, q}, "a", true},
		{[]string{p, "n", q}, p + "n" + q, false},
		{[]string{q + p + p + q}, q + p, true},
		{[]string{p, p, "x"}, p + p + "x", false},
		{[]string{p}, "", false},
	} {
		k := newDetachKeys()
		got, left := "", false
		for _, typed := range c.typed {
			out, err := k.edit([]byte(typed))
			got += string(out)
			left = left || errors.Is(err, errDetached)
		}
		if got != c.want || left != c.left {
			t.Errorf("%q: %q, left %t", c.typed, got, left)
		}
	}
}

// endless is a command that does not end.
type endless struct{ session.Process }

func (endless) Wait(context.Context) (*runner.Result, error) { select {} }

// TestDetachTyped checks that what was typed in one burst with the detach keys reaches the command.
func TestDetachTyped(t *testing.T) {
	keys, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	command, master := os.NewFile(uintptr(pair[0]), "command"), os.NewFile(uintptr(pair[1]), "master")
	full := 0
	for block := make([]byte, 4096); err == nil; { // the command reads late
		var n int
		n, err = unix.Write(pair[1], block)
		full += max(n, 0)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{fd: fdOf(keys), keys: newDetachKeys()}
	j := &execution{term: term, over: make(chan struct{})}
	term.connect(&console{stdin: keys, stdout: null}, master, false, nil, nil)
	typed.WriteString("text\x10\x11")
	left := make(chan struct{})
	go func() { j.waitOrLeave(endless{}); close(left) }()
	select {
	case <-left:
		t.Error("it detaches before the command has what was typed")
	case <-time.After(50 * time.Millisecond):
	}
	got := make([]byte, full+4)
	if _, err := io.ReadFull(command, got); err != nil || string(got[full:]) != "text" {
		t.Errorf("the command reads %q, %v", got[full:], err)
	}
	<-left
}
