package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// identity says which sandbox this is and what it was made from. Every part of a sandbox has the identity. It says what to
// make, and where to register its cleanup.
//
// Nothing changes it after creation, except spec.Egress and spec.Limits, which the sandbox's mu guards.
type identity struct {
	machine  *Machine
	id       string
	spec     runner.Spec
	egress   *runner.Egress // with the fields that spec lacks; nil: no egress
	created  time.Time
	began    time.Time // start of the current run; later than created after a restart
	prepared bool      // made before its owner was known

	undo cleanup // has a lock of its own
	late cleanup // see undoLate
}

// ID returns the id.
func (i *identity) ID() string { return i.id }

// Spec returns the Spec. Only its Egress and Limits change after creation: Info has a copy.
func (i *identity) Spec() *runner.Spec { return &i.spec }

// Prepared reports whether the sandbox was made before its owner was known.
func (i *identity) Prepared() bool { return i.prepared }

// undoLate adds steps that no result waits for: the slow unmounts of the runner's own view, and files that only the
// runner sees. With an image or a persistent sandbox they are not late, because others may wait for the disk.
func (i *identity) undoLate(f func()) {
	if i.spec.Rootfs == nil && i.spec.Lifetime != runner.Persistent {
		i.late.add(f)
		return
	}
	i.undo.add(f)
}

// NewID returns the id of a new sandbox.
func NewID() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// ValidName checks the name of a sandbox; an empty name means that it has none.
func ValidName(name string) error {
	if name == "" {
		return nil
	}
	if err := runner.CheckName(name); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox %q: %w", name, err)
	}
	return nil
}

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
	return ipc.Errorf(ipc.CodeStopped, "%s %q: it is stopped", what, s.id)
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

// Caller is a connection of a client, as a sandbox sees it.
type Caller interface {
	Left() bool            // reports whether it has disconnected
	Done() <-chan struct{} // closed when it has disconnected
	Event(op ipc.Op, body any) error
	Disown(id string) // called for its one-shot sandbox at the end
}
