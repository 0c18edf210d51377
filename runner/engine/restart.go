package engine

import (
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/given"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// restart makes a sandbox whose processes are gone again, over its remaining files. The caller has opened its
// directories anew.
func (c *caller) restart(t api.Restart, m *ipc.Message) (api.Opened, error) {
	e := c.e
	live, rec, err := e.locate(t.Sandbox)
	switch {
	case err != nil:
		return api.Opened{}, err
	case live != nil: // another caller was faster
		given.Remove(e.boot.RunDir, t.Granted)
		return live.open()
	case rec.Snapshot:
		return api.Opened{}, stopped(rec)
	}
	spec := rec.Info.Spec
	spec.Exposed, spec.Granted = t.Exposed, t.Granted
	if spec.Egress != nil {
		spec.Egress.Upstream, spec.Egress.Secrets = t.Upstream, t.Secrets
	}
	egress, err := c.e.admitEgress(&spec, m)
	if err != nil {
		return api.Opened{}, err
	}
	s := e.newSandbox(rec.Info.ID, spec)
	s.asker = c
	s.egress, s.created, s.kept.restarted, s.kept.news, s.last = egress, rec.Info.Created, true, !rec.Quiet, rec.Info.Result
	s.kept.secrets = append(missing(rec.Secrets, t.Secrets), namesOf(t.Secrets)...)
	s.kept.lacks = missing(rec.Secrets, t.Secrets)
	s.next = uint64(s.began.UnixMilli()) << 12 // command numbers are never reused
	other, err := e.claimAgain(s)
	if err != nil {
		return api.Opened{}, err
	}
	if other != nil {
		given.Remove(e.boot.RunDir, t.Granted)
		return other.open()
	}
	if err := s.build(m); err != nil {
		return api.Opened{}, ipc.Errorf(codeOf(err), "restart sandbox %q: %w", s.id, err)
	}
	close(s.built)
	return s.open()
}

// stopped returns the error for using a sandbox that has no processes of this runner.
func stopped(rec store.Record) error {
	if rec.Snapshot {
		err := ipc.Errorf(ipc.CodeInvalid, "open sandbox %q: it is a snapshot: only its forks can run", rec.Info.ID)
		err.Hint = "demesne fork ID makes a sandbox from it"
		return err
	}
	if rec.Info.State == runner.Running {
		return ipc.Errorf(ipc.CodeBusy, "open sandbox %q: %w", rec.Info.ID, store.ErrBusy)
	}
	return ipc.Errorf(ipc.CodeStopped, "open sandbox %q: it is stopped", rec.Info.ID)
}

// absent handles a request about a sandbox that is not live in this runner.
func (e *Engine) absent(op ipc.Op, t api.Target, rec store.Record, unknown error) (any, error) {
	switch {
	case unknown == nil && op == api.OpInspect:
		return rec.Info, nil
	case unknown == nil && op == api.OpOpen:
		return nil, stopped(rec)
	case unknown == nil:
		return nil, e.stopAsleep(rec, t.Keep)
	case op == api.OpStop:
		return nil, unknown
	}
	info, err := e.state.Find(t.Sandbox)
	switch {
	case err != nil:
		return nil, unknown
	case op == api.OpOpen:
		return nil, ipc.Errorf(ipc.CodeGone, "open sandbox %q: it has ended", t.Sandbox)
	}
	return info, nil
}

// stopAsleep removes the files of a sandbox that has no processes of this runner, after ending those of another
// runner.
func (e *Engine) stopAsleep(rec store.Record, keepFiles bool) error {
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
	box, _, err := take(d, rec.Info.ID)
	if err != nil {
		return err
	}
	if err := box.Remove(); err != nil {
		return err
	}
	e.state.Ended(rec.Info)
	return nil
}

// evict ends a sandbox of another runner of this user. Usually that runner's program has been replaced, and no
// caller can reach it any more. Without a PID 1 it releases the files.
func evict(d *store.Store, rec store.Record) error {
	if err := rec.Init.Kill(); err != nil {
		return ipc.Errorf(ipc.CodeInternal, "end sandbox %q of another runner: %w", rec.Info.ID, err)
	}
	for deadline := time.Now().Add(initTimeout); ; time.Sleep(time.Millisecond) {
		now, err := d.Find(rec.Info.ID)
		switch {
		case err != nil || now.Info.State != runner.Running: // or it has expired
			return nil
		case time.Now().After(deadline):
			return ipc.Errorf(ipc.CodeBusy, "end sandbox: %w", stopped(now))
		}
	}
}

// stop ends a live sandbox and removes its files unless keepFiles is set.
func (s *sandbox) stop(keepFiles bool) error {
	if keepFiles {
		if err := s.keeps("stop sandbox"); err != nil {
			return err
		}
		s.end("stopped")
		return nil
	}
	s.remove("stopped")
	// It may have been ending by itself.
	if rec, err := s.e.stopped(s.id); err == nil {
		return s.e.stopAsleep(rec, false)
	}
	return nil
}
