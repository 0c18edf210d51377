package engine

import (
	"fmt"
	"os"
	"time"

	"demesne/runner/pause"
	"demesne/runner/userns"
)

// idle is a sandbox that nobody uses. It is under the sandbox's mu.
type idle struct {
	timer  *time.Timer   // until it is frozen
	frozen *pause.Paused // what holds still
}

// rest starts the time after which a sandbox that nobody uses holds still. s.mu is held.
func (s *sandbox) rest() {
	after := time.Duration(s.spec.FreezeIdle)
	if after <= 0 || s.ending || len(s.execs) > 0 || s.e.boot.Mode == userns.ModeMinimal {
		return
	}
	if s.idle.timer == nil {
		s.idle.timer = time.AfterFunc(after, s.holdStill)
		return
	}
	s.idle.timer.Reset(after)
}

// holdStill stops what the commands of s left running. What does not let itself be stopped is tried again later.
func (s *sandbox) holdStill() {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || len(s.execs) > 0 || s.idle.frozen != nil {
		return
	}
	f, err := pause.Pause(s.pid)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
		s.rest()
		return
	}
	s.idle.frozen = f
}

// wake lets it go on, before a command is started or when its sandbox ends.
func (i *idle) wake() {
	if i.timer != nil {
		i.timer.Stop()
	}
	if i.frozen != nil {
		i.frozen.Thaw()
		i.frozen = nil
	}
}
