package engine

import (
	"time"

	"demesne/runner"
	"demesne/runner/keep"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// restart makes a sandbox again whose processes are gone, over the files they left. The caller opened what
// is shown to it anew.
func (c *caller) restart(t protocol.Restart, m *wire.Message) (protocol.Opened, error) {
	e := c.e
	live, rec, err := e.locate(t.Sandbox)
	switch {
	case err != nil:
		return protocol.Opened{}, err
	case live != nil: // somebody was faster
		return live.open()
	case rec.Snapshot:
		return protocol.Opened{}, stopped(rec)
	}
	spec := rec.Info.Spec
	spec.Exposed = t.Exposed
	if spec.Egress != nil {
		spec.Egress.Upstream, spec.Egress.Secrets = t.Upstream, t.Secrets
	}
	egress, err := c.e.admitEgress(&spec, m)
	if err != nil {
		return protocol.Opened{}, err
	}
	s := e.newSandbox(rec.Info.ID, spec)
	s.asker = c
	s.egress, s.created, s.restarted, s.news, s.last = egress, rec.Info.Created, true, !rec.Quiet, rec.Info.Result
	s.next = uint64(s.began.UnixMilli()) << 12 // no number of a command is used twice
	if other := e.claimAgain(s); other != nil {
		return other.open()
	}
	if err := s.build(m); err != nil {
		return protocol.Opened{}, wire.Errorf(codeOf(err), "restart sandbox %q: %w", s.id, err)
	}
	close(s.built)
	return s.open()
}

// claimAgain registers s, unless it lives already.
func (e *Engine) claimAgain(s *sandbox) (other *sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.boxes[s.id]; other != nil && !other.over() {
		return other
	}
	e.boxes[s.id] = s
	return nil
}

// locate finds the sandbox with that id or name: one that lives, or the record of one that has files and
// no processes of ours.
func (e *Engine) locate(idOrName string) (*sandbox, keep.Record, error) {
	for {
		s, unknown := e.find(idOrName)
		if unknown == nil && !(s.over() && s.stays()) {
			return s, keep.Record{}, nil
		}
		d, err := e.keeper()
		if err != nil {
			return nil, keep.Record{}, unknown
		}
		rec, err := d.Find(idOrName)
		switch {
		case err != nil && unknown == nil: // it was, a moment ago
			return nil, rec, wire.Errorf(wire.CodeUnknown, "%w", err)
		case err != nil:
			return nil, rec, unknown
		case !e.lives(rec.Info.ID):
			return nil, rec, nil
		}
		idOrName = rec.Info.ID // restarted meanwhile
	}
}

// asleep finds a sandbox that has files and no processes of ours.
func (e *Engine) asleep(idOrName string) (keep.Record, error) {
	if d, err := e.keeper(); err == nil {
		rec, err := d.Find(idOrName)
		if err == nil && !e.lives(rec.Info.ID) {
			return rec, nil
		}
	}
	return keep.Record{}, wire.Errorf(wire.CodeUnknown, "find sandbox %q: no such sandbox", idOrName)
}

func (e *Engine) lives(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.boxes[id]
	return s != nil && !s.over()
}

// stopped is what a caller is told who wants to use a sandbox that has no processes of ours.
func stopped(rec keep.Record) error {
	if rec.Snapshot {
		return wire.Errorf(wire.CodeInvalid, "open sandbox %q: it is a snapshot, which only forks run of", rec.Info.ID)
	}
	if rec.Info.State == runner.Running {
		return wire.Errorf(wire.CodeBusy, "open sandbox %q: %w", rec.Info.ID, keep.ErrBusy)
	}
	return wire.Errorf(wire.CodeStopped, "open sandbox %q: it has no processes, and its files are kept", rec.Info.ID)
}

// absent answers about a sandbox that does not live here.
func (e *Engine) absent(op wire.Op, t protocol.Target, rec keep.Record, unknown error) (any, error) {
	switch {
	case unknown == nil && op == protocol.OpInspect:
		return rec.Info, nil
	case unknown == nil && op == protocol.OpOpen:
		return nil, stopped(rec)
	case unknown == nil:
		return nil, e.stopAsleep(rec, t.Keep)
	case op == protocol.OpStop:
		return nil, unknown
	}
	info, err := e.state.find(t.Sandbox)
	switch {
	case err != nil:
		return nil, unknown
	case op == protocol.OpOpen:
		return nil, wire.Errorf(wire.CodeGone, "open sandbox %q: it has ended", t.Sandbox)
	}
	return info, nil
}

// stopAsleep removes the files of a sandbox that has no processes of ours, once it has none at all.
func (e *Engine) stopAsleep(rec keep.Record, keepFiles bool) error {
	d, err := e.keeper()
	if err != nil {
		return err
	}
	if rec.Info.State == runner.Running {
		if err := evict(d, rec); err != nil {
			return err
		}
	}
	if keepFiles {
		return nil
	}
	box, _, err := d.Take(rec.Info.ID)
	if err != nil {
		return wire.Errorf(wire.CodeBusy, "stop sandbox: %w", err)
	}
	if err := box.Remove(); err != nil {
		return err
	}
	e.state.ended(rec.Info)
	return nil
}

// evict ends a sandbox that another runner of this user has: that of a demesne that was replaced meanwhile, mostly,
// which nobody can ask any more. Without a PID 1 it gives the files up.
func evict(d *keep.Dir, rec keep.Record) error {
	if err := rec.Init.Kill(); err != nil {
		return wire.Errorf(wire.CodeInternal, "end sandbox %q of another runner: %w", rec.Info.ID, err)
	}
	for deadline := time.Now().Add(initTimeout); ; time.Sleep(time.Millisecond) {
		now, err := d.Find(rec.Info.ID)
		switch {
		case err != nil || now.Info.State != runner.Running: // or its time was up
			return nil
		case time.Now().After(deadline):
			return wire.Errorf(wire.CodeBusy, "end sandbox: %w", stopped(now))
		}
	}
}

// stop ends a live sandbox, and removes its files unless they are to stay.
func (s *sandbox) stop(keepFiles bool) error {
	if keepFiles {
		if !s.stays() {
			return wire.Errorf(wire.CodeInvalid, "stop sandbox %q: its files are not kept: %v", s.id, s.keptWhy)
		}
		s.end("stopped")
		return nil
	}
	s.remove("stopped")
	// It may have been ending by itself.
	if rec, err := s.e.asleep(s.id); err == nil {
		return s.e.stopAsleep(rec, false)
	}
	return nil
}

// listAsleep returns what is asleep, for the list of all.
func (e *Engine) listAsleep(live map[string]bool) (infos []runner.Info) {
	d, err := e.keeper()
	if err != nil {
		return nil
	}
	for _, rec := range d.All() {
		if !live[rec.Info.ID] {
			infos = append(infos, rec.Info)
		}
	}
	return infos
}

// newSandbox is a sandbox before it is made.
func (e *Engine) newSandbox(id string, spec runner.Spec) *sandbox {
	now := time.Now()
	return &sandbox{
		e: e, id: id, spec: spec, created: now, began: now, paths: inside,
		execs: map[uint64]*execution{}, built: make(chan struct{}), finished: make(chan struct{}),
	}
}

// build makes s. On an error nothing is left of it but the files it had before.
func (s *sandbox) build(m *wire.Message) error {
	err := s.make(m)
	if err == nil {
		err = s.moveIn()
	}
	if err == nil {
		return nil
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	close(s.built)
	s.undo.run()
	s.late.run()
	close(s.finished)
	s.e.drop(s)
	s.e.maybeIdle() // the caller may have left meanwhile
	return err
}

// drop takes s out of the table, if it is not the place of one that came after it.
func (e *Engine) drop(s *sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.boxes[s.id] == s {
		delete(e.boxes, s.id)
	}
}
