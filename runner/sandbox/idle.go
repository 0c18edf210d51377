package sandbox

import (
	"fmt"
	"os"
	"time"

	"demesne/runner/pause"
)

// idle is the part of a sandbox that pauses its unused processes. The sandbox's mu guards it.
type idle struct {
	timer  *time.Timer   // fires when the sandbox is to be paused
	paused *pause.Paused // nil: not paused
}

// rest starts the timer that pauses an unused sandbox. s.mu is held.
func (s *Sandbox) rest() {
	after := time.Duration(s.spec.PauseIdle)
	if after <= 0 || s.ending || len(s.commands.running) > 0 || s.on.minimal() {
		return
	}
	if s.idle.timer == nil {
		s.idle.timer = time.AfterFunc(after, s.pauseIdle)
		return
	}
	s.idle.timer.Reset(after)
}

// pauseIdle pauses the processes that the commands of s left. If that fails, it tries again later.
func (s *Sandbox) pauseIdle() {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || len(s.commands.running) > 0 || s.idle.paused != nil {
		return
	}
	f, err := pause.Pause(s.init.pid)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
		s.rest()
		return
	}
	s.idle.paused = f
}

// wake resumes the processes, before a command starts or when the sandbox ends.
func (i *idle) wake() {
	if i.timer != nil {
		i.timer.Stop()
	}
	if i.paused != nil {
		i.paused.Resume()
		i.paused = nil
	}
}
