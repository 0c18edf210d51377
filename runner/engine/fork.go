package engine

import (
	"errors"
	"path/filepath"
	"time"

	"demesne/runner"
	"demesne/runner/keep"
	"demesne/runner/wire"
)

// snapshotLife is longer than anybody waits: a snapshot does not expire.
const snapshotLife = 100 * 365 * 24 * time.Hour

// basesMax leaves room for the layers of an image in what overlayfs takes, see layersMax.
const basesMax = 100

// fork makes a sandbox, or a snapshot, of the files of one that has no processes.
func (e *Engine) fork(t runner.ForkRequest) (id string, err error) {
	if err := e.settled(); err != nil {
		return "", err
	}
	if err := e.admitFork(t); err != nil {
		return "", err
	}
	live, rec, err := e.locate(t.Sandbox)
	if err != nil {
		return "", err
	}
	if live != nil {
		return "", wire.Errorf(wire.CodeBusy, "fork sandbox %q: it has processes", live.id)
	}
	d, err := e.keeper()
	if err != nil {
		return "", err
	}
	box, rec, err := d.Take(rec.Info.ID)
	if errors.Is(err, keep.ErrBusy) {
		return "", wire.Errorf(wire.CodeBusy, "fork sandbox: %w", err)
	}
	if err != nil {
		return "", err
	}
	defer box.Close()
	if n := len(rec.Base) + 1; n > basesMax {
		return "", wire.Errorf(wire.CodeInvalid, "fork sandbox %q: it is the %dth fork of forks; %d is the most", rec.Info.ID, n, basesMax)
	}
	if err := errors.Join(gone(rec.Init), box.Freeze(&rec)); err != nil {
		return "", err
	}
	return e.forked(d, rec, t)
}

// admitFork refuses what no fork can be.
func (e *Engine) admitFork(t runner.ForkRequest) error {
	if err := validName(t.Name); err != nil {
		return err
	}
	if !t.Snapshot && !filepath.IsAbs(t.Out) {
		return wire.Errorf(wire.CodeInvalid, "fork sandbox: output directory %q: not absolute", t.Out)
	}
	if t.Name == "" {
		return nil
	}
	if _, _, err := e.locate(t.Name); err == nil {
		return wire.Errorf(wire.CodeExists, "fork sandbox: the name %q is in use", t.Name)
	}
	return nil
}

// forked writes the new one down. Its files are all below it. from is locked meanwhile, so they stay.
func (e *Engine) forked(d *keep.Dir, from keep.Record, t runner.ForkRequest) (id string, err error) {
	box, err := d.New(newID())
	if err != nil {
		return "", err
	}
	now := time.Now()
	i := from.Info
	i.ID, i.Name, i.Out, i.Created, i.Result = box.ID(), t.Name, t.Out, now, nil
	i.Spec.Name, i.Spec.Out, i.Spec.Key = t.Name, t.Out, ""
	i.Expires = expiry(i.Spec, now, now)
	if t.Snapshot {
		i.Expires = now.Add(snapshotLife)
	}
	if err := box.Write(keep.Record{Info: i, Map: from.Map, Base: from.Base, Snapshot: t.Snapshot}); err != nil {
		return "", errors.Join(err, box.Remove())
	}
	return i.ID, box.Close()
}
