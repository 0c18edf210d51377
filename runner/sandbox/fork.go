package sandbox

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// snapshotLife is a century: a snapshot does not expire in practice.
const snapshotLife = 100 * 365 * 24 * time.Hour

// basesMax leaves room for the layers of an image within the limit of overlayfs, see layersMax.
const basesMax = 100

// ForkStopped makes a sandbox or snapshot from the files of a sandbox that has no processes of this runner.
func (m *Machine) ForkStopped(id string, t api.ForkRequest) (runner.Forked, error) {
	d, err := m.Store()
	if err != nil {
		return runner.Forked{}, err
	}
	dir, rec, err := take(d, id)
	if err != nil {
		return runner.Forked{}, err
	}
	defer dir.Close()
	if err := errors.Join(admitBases(rec.Info.ID, rec.Base), admitUppers(rec.Info)); err != nil {
		return runner.Forked{}, err
	}
	if err := errors.Join(waitEnd(rec.Init), dir.Pause(&rec)); err != nil {
		return runner.Forked{}, err
	}
	return m.fork(d, rec, t)
}

func admitBases(id string, base []string) error {
	if n := len(base) + 1; n > basesMax {
		return ipc.Errorf(ipc.CodeInvalid, "fork sandbox %q: %dth fork in a chain; at most %d are possible", id, n, basesMax)
	}
	return nil
}

// admitUppers refuses to fork a sandbox whose changes of a directory are kept apart: two sandboxes cannot share them.
func admitUppers(i runner.Info) error {
	for _, m := range i.Spec.Mounts {
		if m.Upper != "" {
			return ipc.Errorf(ipc.CodeInvalid, "fork sandbox %q: its changes of %q are kept apart, and belong to it alone", i.ID, m.Source)
		}
	}
	return nil
}

// fork writes the record of the new sandbox. All its files are in layers below it, and the caller holds
// their locks.
func (m *Machine) fork(d *store.Store, from store.Record, t api.ForkRequest) (runner.Forked, error) {
	dir, err := d.New(cmp.Or(t.ID, NewID()))
	if err != nil {
		return runner.Forked{}, err
	}
	now := time.Now()
	i := from.Info
	i.ID, i.Name, i.Out, i.Created, i.Result, i.Receipt = dir.ID(), t.Name, t.Out, now, nil, nil
	i.Spec.Name, i.Spec.Out, i.Spec.Key, i.Spec.Given, i.Spec.Granted = t.Name, t.Out, "", nil, ""
	i.Spec.Frontend, i.Spec.Share = t.Frontend, ""
	leaveGroup(&i.Spec)
	if err := replace(&i.Spec, t); err != nil {
		return runner.Forked{}, errors.Join(err, dir.Remove())
	}
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
	if t.Ephemeral {
		r.Maker = m.History.Self()
	}
	if err := dir.Write(r); err != nil {
		return runner.Forked{}, errors.Join(err, dir.Remove())
	}
	return did, dir.Close()
}

// leaveGroup takes a fork out of the group of its source. It keeps the gateway, whose rules may change.
func leaveGroup(spec *runner.Spec) {
	if spec.Egress != nil && spec.Egress.Group != "" {
		own := *spec.Egress
		own.Group, own.Gateway = "", true
		spec.Egress = &own
	}
}

// replace gives a fork its own mounts and routes, in place of the source's.
func replace(spec *runner.Spec, t api.ForkRequest) error {
	spec.Mounts = slices.Clone(spec.Mounts)
	for _, m := range t.Mounts {
		at := slices.IndexFunc(spec.Mounts, func(old runner.Mount) bool { return old.Target == m.Target && old.ReadOnly == m.ReadOnly })
		if at < 0 {
			return ipc.Errorf(ipc.CodeInvalid, "fork sandbox: no mount at %q to replace", m.Target)
		}
		spec.Mounts[at] = m
	}
	if len(t.Routes) == 0 {
		return nil
	}
	var own runner.Egress
	if spec.Egress != nil {
		own = *spec.Egress
	}
	own.Routes = slices.Clone(own.Routes)
	for _, r := range t.Routes {
		at := slices.IndexFunc(own.Routes, func(old runner.Route) bool { return old.Port == r.Port })
		if at < 0 {
			return ipc.Errorf(ipc.CodeInvalid, "fork sandbox: no route on port %d to replace", r.Port)
		}
		own.Routes[at] = r.Public()
	}
	spec.Egress = &own
	return nil
}
