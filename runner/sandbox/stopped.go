package sandbox

import (
	"errors"
	"io/fs"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// take opens the directory of a sandbox that existed a moment ago.
func take(d *store.Store, id string) (*store.Dir, store.Record, error) {
	dir, rec, err := d.Take(id)
	switch {
	case errors.Is(err, store.ErrBusy):
		err = ipc.Errorf(ipc.CodeBusy, "%w", err)
	case errors.Is(err, fs.ErrNotExist):
		err = ipc.NoSuchSandbox(id)
	}
	return dir, rec, err
}

// waitEnd waits for the end of a PID 1 whose runner was killed. PID 1 and its overlay outlive the runner by a moment.
func waitEnd(init store.Process) error {
	for deadline := time.Now().Add(initTimeout); init.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return ipc.Errorf(ipc.CodeBusy, "open sandbox: its PID 1 still runs as process %d", init.PID)
		}
	}
	return nil
}

// releaseTime bounds the wait for a runner that was killed.
const releaseTime = 5 * time.Second

// Released returns the record of a sandbox as it is once a killed runner has released it. That takes a while where a pid
// namespace ends with the runner. Released does not wait for a runner whose PID 1 lives.
func (m *Machine) Released(rec store.Record) store.Record {
	d, err := m.Store()
	for until := time.Now().Add(releaseTime); err == nil && rec.Info.State == runner.Running && !rec.Init.Alive() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
		var now store.Record
		if now, err = d.Find(rec.Info.ID, nil); err == nil {
			rec = now
		}
	}
	return rec
}

// ErrStopped returns the error for using a sandbox that has no processes of this runner.
func ErrStopped(rec store.Record) error {
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

// StopOther ends the processes that a sandbox has in another runner, if any, and removes its files unless keepFiles is
// set.
func (m *Machine) StopOther(rec store.Record, keepFiles bool) error {
	d, err := m.Store()
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
	dir, _, err := take(d, rec.Info.ID)
	if err != nil {
		return err
	}
	if err := dir.Remove(); err != nil {
		return LeftBehind(err)
	}
	m.History.Ended(rec.Info)
	return nil
}

// evict ends a sandbox of another runner of this user. Usually that runner's program has been replaced, and no
// caller can reach it any more. Without a PID 1 it releases the files.
func evict(d *store.Store, rec store.Record) error {
	if err := rec.Init.Kill(); err != nil {
		return ipc.Errorf(ipc.CodeInternal, "end sandbox %q of another runner: %w", rec.Info.ID, err)
	}
	for deadline := time.Now().Add(initTimeout); ; time.Sleep(time.Millisecond) {
		now, err := d.Find(rec.Info.ID, nil)
		switch {
		case err != nil || now.Info.State != runner.Running: // or it has expired
			return nil
		case time.Now().After(deadline):
			return ipc.Errorf(ipc.CodeBusy, "end sandbox: %w", ErrStopped(now))
		}
	}
}
