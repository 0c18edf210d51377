package engine

import (
	"demesne/runner"
	"demesne/runner/ipc"
)

// endedErr returns the error for a request to an ending sandbox. s.mu is held; it is released while s ends.
func (s *sandbox) endedErr(what string) error {
	if !s.kept.stay {
		return ipc.Errorf(ipc.CodeGone, "%s %q: it has ended", what, s.id)
	}
	s.mu.Unlock()
	<-s.finished // a restart is possible only after that
	s.mu.Lock()
	return ipc.Errorf(ipc.CodeStopped, "%s %q: it is stopped", what, s.id)
}

// done reports whether only the record of s is left. Its name is free then, which callers that have its result rely
// on.
func (s *sandbox) done() bool {
	select {
	case <-s.finished:
		return true
	default:
		return false
	}
}

// terminate ends s for a reason that the results of its commands report.
func (s *sandbox) terminate(reason runner.Reason, detail string) {
	s.mu.Lock()
	if s.verdict == "" {
		s.verdict, s.detail = reason, detail
	}
	s.mu.Unlock()
	s.end(detail)
}

// end tears s down and forgets it.
func (s *sandbox) end(why string) {
	if s.teardown(why) {
		s.e.forget(s)
	}
}

// teardown ends every process and then removes what they used. It returns when nothing is left, and reports whether
// this call did the work.
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

// cleanup is the second half of teardown, for the caller that has set ending.
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

// undoLate adds steps that no result waits for: the slow unmounts of the runner's own view, and files that only the
// runner sees. With an image or a persistent sandbox they are not late, because others may wait for the disk.
func (s *sandbox) undoLate(f func()) {
	if s.spec.Rootfs == nil && s.spec.Lifetime == runner.OneShot {
		s.late.add(f)
		return
	}
	s.undo.add(f)
}

// forget removes a sandbox from the tables, after the results of its commands are sent.
func (e *Engine) forget(s *sandbox) {
	s.late.run()
	if !s.stays() {
		e.state.Ended(s.info())
	}
	e.drop(s)
	e.maybeIdle()
	e.refillSoon()
}
