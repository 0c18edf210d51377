package engine

import (
	"demesne/runner"
	"demesne/runner/ipc"
)

// endedErr is what is told to who comes too late. s.mu is held, and let go while s ends.
func (s *sandbox) endedErr(what string) error {
	if !s.kept.stay {
		return ipc.Errorf(ipc.CodeGone, "%s %q: it has ended", what, s.id)
	}
	s.mu.Unlock()
	<-s.finished // only then can it be restarted
	s.mu.Lock()
	return ipc.Errorf(ipc.CodeStopped, "%s %q: it has no processes, and its files are kept", what, s.id)
}

// done says whether nothing is left of s but its record. Its name is free by then,
// which who was told its result may know.
func (s *sandbox) done() bool {
	select {
	case <-s.finished:
		return true
	default:
		return false
	}
}

// terminate ends s for a reason that its commands' results give.
func (s *sandbox) terminate(reason runner.Reason, detail string) {
	s.mu.Lock()
	if s.verdict == "" {
		s.verdict, s.detail = reason, detail
	}
	s.mu.Unlock()
	s.end(detail)
}

// end takes s down and forgets it.
func (s *sandbox) end(why string) {
	if s.teardown(why) {
		s.e.forget(s)
	}
}

// teardown ends first every process, then what they used. It returns when nothing is
// left, whoever called it first, and says whether that was this call.
func (s *sandbox) teardown(why string) bool {
	<-s.built
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		<-s.finished
		return false
	}
	s.ending = true
	if s.verdict == "" {
		s.verdict, s.detail = runner.Lost, why
	}
	s.mu.Unlock()
	s.cleanup()
	return true
}

// cleanup is the rest of takeDown, for whoever has set ending.
func (s *sandbox) cleanup() {
	s.undo.run()
	s.release()
	if s.owner != nil {
		s.owner.disown(s)
	}
	s.mu.Lock()
	left := s.execs
	s.execs = nil
	s.idle.wake()
	s.mu.Unlock()
	for _, x := range left {
		x.finish(nil)
		go x.tell()
	}
	close(s.finished)
}

// undoLate is undo.add for what no result waits for: our own view of the mounts, which goes
// slowly, and files of our own, which nobody else sees. What is of a disk, others may be waiting for.
func (s *sandbox) undoLate(f func()) {
	if s.spec.Rootfs == nil && s.spec.Lifetime == runner.OneShot {
		s.late.add(f)
		return
	}
	s.undo.add(f)
}

// forget is the last of a sandbox, when its commands' results are told.
func (e *Engine) forget(s *sandbox) {
	s.late.run()
	if !s.stays() {
		e.state.Ended(s.info())
	}
	e.drop(s)
	e.maybeIdle()
	e.refillSoon()
}
