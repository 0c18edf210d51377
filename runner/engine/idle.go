package engine

import (
	"fmt"
	"os"
	"time"

	"demesne/runner/freeze"
	"demesne/runner/userns"
)

// rest starts the time after which a sandbox that nobody uses holds still. s.mu is held.
func (s *sandbox) rest() {
	after := time.Duration(s.spec.FreezeIdle)
	if after <= 0 || s.ending || len(s.execs) > 0 || s.e.boot.Mode == userns.ModeMinimal {
		return
	}
	if s.resting == nil {
		s.resting = time.AfterFunc(after, s.holdStill)
		return
	}
	s.resting.Reset(after)
}

// holdStill stops what the commands of s left running. What does not let itself be stopped is tried again later.
func (s *sandbox) holdStill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || len(s.execs) > 0 || s.frozen != nil {
		return
	}
	f, err := freeze.Stop(s.pid)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
		s.rest()
		return
	}
	s.frozen = f
}

// wake lets it go on, before a command is started or when s ends. s.mu is held.
func (s *sandbox) wake() {
	if s.resting != nil {
		s.resting.Stop()
	}
	if s.frozen != nil {
		s.frozen.Thaw()
		s.frozen = nil
	}
}
