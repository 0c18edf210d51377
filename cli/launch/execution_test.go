package launch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/need"
	"demesne/runner"
	"demesne/session"
)

// TestLearnedTold checks the hint about egress suggest after a --learn run that has a log.
func TestLearnedTold(t *testing.T) {
	for _, c := range []struct {
		learn bool
		log   string
		want  string
	}{
		{true, "/logs/x.jsonl", "hint: to allow only what this run used: demesne egress suggest /logs/x.jsonl > policy.toml"},
		{true, "", "end"}, {false, "/logs/x.jsonl", "end"},
	} {
		controlling, slave := need.Terminal(t, 50, 120)
		j := &Execution{Options: &Options{App: &app.App{Console: app.Console{Files: stream.Files{Stderr: slave}}}, Network: Network{Learn: c.learn}}, Result: &runner.Result{EgressLog: c.log}}
		j.tellLearned()
		fmt.Fprintln(slave, "end")
		line, err := bufio.NewReader(controlling).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, c.want) {
			t.Errorf("%+v: %q, %v", c, line, err)
		}
	}
}

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
	term := &stream.Terminal{Fd: stream.FD(keys), Keys: stream.NewDetachKeys()}
	j := &Execution{Term: term, Over: make(chan struct{})}
	term.Connect(&stream.Files{Stdin: keys, Stdout: null}, master, false, nil, nil)
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

// endless is a command that does not end.
type endless struct{ session.Process }

func (endless) Wait(context.Context) (*runner.Result, error) { select {} }
