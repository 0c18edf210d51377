package sandbox

import (
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
)

// state says where a sandbox is in its life: in the making, running, ending, ended. The parts that change while the
// sandbox runs have it for its locks.
type state struct {
	*identity
	built    chan struct{} // closed when making it has succeeded or failed; only then may it be ended
	finished chan struct{} // closed when teardown is complete

	starting sync.RWMutex // read-locked to start a command, locked to pause all processes; taken before mu
	mu       sync.Mutex   // guards the fields below, and the fields of parts that say so
	ending   bool
	stay     bool          // keep its files when it ends
	verdict  runner.Reason // why the runner ended it; empty if it ended by itself
	detail   string
}

// Done reports whether only the record of the sandbox is left. Its name is free then, which callers that have its
// result rely on.
func (s *state) Done() bool {
	select {
	case <-s.finished:
		return true
	default:
		return false
	}
}

// Wait waits until the sandbox is done.
func (s *state) Wait() { <-s.finished }

// Stays reports whether the files of the sandbox stay when it ends.
func (s *state) Stays() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stay
}

// endedErr returns the error for a request to an ending sandbox. s.mu is held; it is released while the sandbox ends.
func (s *state) endedErr(what string) error {
	if !s.stay {
		return ipc.Errorf(ipc.CodeGone, "%s %q: it has ended", what, s.id)
	}
	s.mu.Unlock()
	<-s.finished // a restart is possible only after that
	s.mu.Lock()
	return ipc.Errorf(ipc.CodeStopped, "%s %q: it has no processes, and its files are kept", what, s.id)
}

// alive returns an error if the sandbox is ending. The error begins with what.
func (s *state) alive(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return s.endedErr(what)
	}
	return nil
}

// judge sets why the sandbox ends, unless that is known already. s.mu is held.
func (s *state) judge(reason runner.Reason, detail string) {
	if s.verdict == "" {
		s.verdict, s.detail = reason, detail
	}
}
