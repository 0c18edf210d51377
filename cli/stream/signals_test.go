package stream

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/session"
)

// hearing is a process that records the signals it is sent.
type hearing struct {
	session.Process
	heard chan syscall.Signal
}

func (h hearing) Signal(sig syscall.Signal) error {
	h.heard <- sig
	return nil
}

// TestSignalsEarly checks that signals that arrive while the command is being started reach it once it runs,
// with their full strength.
func TestSignalsEarly(t *testing.T) {
	for _, c := range []struct {
		came []unix.Signal
		want syscall.Signal
	}{
		{[]unix.Signal{unix.SIGHUP}, unix.SIGHUP},
		{[]unix.Signal{unix.SIGINT}, unix.SIGINT},
		{[]unix.Signal{unix.SIGTERM, unix.SIGHUP}, unix.SIGHUP},
		{[]unix.Signal{unix.SIGTERM, unix.SIGTERM}, unix.SIGKILL},
	} {
		s, h := SignalsWatched(nil), hearing{heard: make(chan syscall.Signal)}
		for _, sig := range c.came {
			s.Take(sig)
		}
		if s.Ctx.Err() == nil || s.GaveUp() == 0 {
			t.Errorf("%v: not given up", c.came)
		}
		s.Attach(h, func() {})
		if got := <-h.heard; got != c.want {
			t.Errorf("%v: the command has %v, want %v", c.came, got, c.want)
		}
	}
}
