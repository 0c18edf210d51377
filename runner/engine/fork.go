package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pause"
	"demesne/runner/store"
)

// snapshotLife is a century: a snapshot does not expire in practice.
const snapshotLife = 100 * 365 * 24 * time.Hour

// basesMax leaves room for the layers of an image within the limit of overlayfs, see layersMax.
const basesMax = 100

// fork makes a fork for c. It is removed when c ends if it is ephemeral (t.Passing). An unnamed fork is removed,
// too, unless c has called about it by then, which shows that its id arrived.
func (c *caller) fork(t api.ForkRequest) (runner.Forked, error) {
	t.Door = c.door
	f, err := c.e.fork(t)
	if err != nil {
		return f, err
	}
	c.mu.Lock()
	gone := c.gone
	if t.Passing || gone {
		c.ephemeral = append(c.ephemeral, f.ID)
	} else if t.Name == "" {
		c.untold = append(c.untold, f.ID)
	}
	c.mu.Unlock()
	if gone {
		c.pass()
	}
	return f, nil
}

// acked records that c has called about sandbox id.
func (c *caller) acked(id string) {
	c.mu.Lock()
	c.untold = slices.DeleteFunc(c.untold, func(of string) bool { return of == id })
	c.mu.Unlock()
}

// pass removes the ephemeral snapshots and unacknowledged forks of c, unless c has removed them.
func (c *caller) pass() {
	c.mu.Lock()
	ids := append(c.ephemeral, c.untold...)
	c.ephemeral, c.untold = nil, nil
	c.mu.Unlock()
	for _, id := range ids {
		rec, err := c.e.stopped(id)
		if err != nil {
			continue
		}
		if err := c.e.stopAsleep(rec, false); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: remove snapshot: %v\n", err)
		}
	}
}

// fork makes a sandbox or snapshot from the files of another. It copies nothing if no process runs in the other.
func (e *Engine) fork(t api.ForkRequest) (runner.Forked, error) {
	if err := e.admitFork(t); err != nil {
		return runner.Forked{}, err
	}
	live, rec, err := e.locate(t.Sandbox)
	if err != nil {
		return runner.Forked{}, err
	}
	d, err := e.keeper()
	if err != nil && live == nil {
		return runner.Forked{}, err
	}
	if live != nil {
		<-live.built
		if err := live.keeps("fork sandbox"); err != nil {
			return runner.Forked{}, err
		}
		if !live.haltIdle() {
			return live.forkRunning(d, t)
		}
		rec.Info.ID = live.id
	}
	box, rec, err := take(d, rec.Info.ID)
	if err != nil {
		return runner.Forked{}, err
	}
	defer box.Close()
	if err := admitBases(rec.Info.ID, rec.Base); err != nil {
		return runner.Forked{}, err
	}
	if err := errors.Join(gone(rec.Init), box.Pause(&rec)); err != nil {
		return runner.Forked{}, err
	}
	return e.forked(d, rec, t)
}

func admitBases(id string, base []string) error {
	if n := len(base) + 1; n > basesMax {
		return ipc.Errorf(ipc.CodeInvalid, "fork sandbox %q: %dth fork in a chain; at most %d are possible", id, n, basesMax)
	}
	return nil
}

// haltIdle ends s if nothing runs in it, so that its files can be shared without a copy. The next command restarts
// it. A sandbox with egress is never ended here: changed rules and secrets are in no file.
func (s *sandbox) haltIdle() bool {
	s.mu.Lock()
	idle := !s.ending && len(s.execs) == 0 && s.egress == nil && pause.Alone(s.pid)
	if idle {
		s.ending, s.kept.quiet = true, true
		s.verdict, s.detail = runner.Lost, "stopped"
	}
	s.mu.Unlock()
	if idle {
		s.cleanup()
		s.e.forget(s)
	}
	return idle
}

// admitFork rejects an invalid request.
func (e *Engine) admitFork(t api.ForkRequest) error {
	if err := validName(t.Name); err != nil {
		return err
	}
	if !t.Snapshot && !filepath.IsAbs(t.Out) {
		return ipc.Errorf(ipc.CodeInvalid, "fork sandbox: output directory %q: not absolute", t.Out)
	}
	if t.Name == "" {
		return nil
	}
	if _, _, err := e.locate(t.Name); err == nil {
		return ipc.Errorf(ipc.CodeExists, "fork sandbox: the name %q is in use", t.Name)
	}
	return nil
}

// forked writes the record of the new sandbox. All its files are in layers below it, which the caller holds locks
// on.
func (e *Engine) forked(d *store.Store, from store.Record, t api.ForkRequest) (runner.Forked, error) {
	box, err := d.New(newID())
	if err != nil {
		return runner.Forked{}, err
	}
	now := time.Now()
	i := from.Info
	i.ID, i.Name, i.Out, i.Created, i.Result, i.Receipt = box.ID(), t.Name, t.Out, now, nil, nil
	i.Spec.Name, i.Spec.Out, i.Spec.Key, i.Spec.Given, i.Spec.Granted = t.Name, t.Out, "", nil, ""
	i.Spec.Door, i.Spec.Share = t.Door, ""
	i.Expires = expiry(i.Spec, now, now)
	did := runner.Forked{ID: i.ID}
	if t.Snapshot {
		i.Expires = now.Add(snapshotLife)
	} else {
		// One listener cannot serve two sandboxes.
		if len(t.Publish) == 0 {
			did.Unpublished = i.Spec.Publish
		}
		i.Spec.Publish = t.Publish
	}
	// Quiet: a fork never ran, so its first start loses no process.
	r := store.Record{Info: i, Map: from.Map, Base: from.Base, Secrets: from.Secrets, Snapshot: t.Snapshot, Quiet: true}
	if t.Passing {
		r.Maker = e.state.Self()
	}
	if err := box.Write(r); err != nil {
		return runner.Forked{}, errors.Join(err, box.Remove())
	}
	return did, box.Close()
}
