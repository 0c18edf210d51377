package engine

import (
	"errors"
	"io/fs"
	"slices"
	"sync"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// table is the table of live sandboxes, and finds the stopped ones beside them. It is safe for concurrent use: mu
// guards the fields after it. mu is taken after the engine's lock and before a sandbox's.
type table struct {
	machine *sandbox.Machine

	counting sync.Mutex // held while a place is taken or given to a sandbox; taken before mu

	mu     sync.Mutex
	all    map[string]*sandbox.Sandbox
	slots  map[string]*slot // by id: of reservations, and of sandboxes that were made by this runner
	served bool             // there was a sandbox
}

// empty reports whether no sandbox is live.
func (t *table) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) == 0
}

// hasServed reports whether there was a sandbox.
func (t *table) hasServed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.served
}

// claim registers s under its id and name. A name belongs to one live or persistent sandbox. most bounds the limits of
// all live sandboxes together; nil: no bound. s gets the place, if it needs one.
func (t *table) claim(s *sandbox.Sandbox, most *runner.Limits, place *slot) (err error) {
	if place != nil {
		_, done, err := t.count()
		if err != nil {
			return err
		}
		defer done()
	}
	free := t.ifFree(s, "", most, func() {
		if place != nil {
			if err = place.give(s.ID()); err != nil {
				return
			}
		}
		t.all[s.ID()] = s
		t.served = true
	})
	return errors.Join(free, err)
}

// ifFree calls then, with t.mu held, if the name of s is free and its limits fit. It ignores the sandbox with the id
// without.
func (t *table) ifFree(s *sandbox.Sandbox, without string, most *runner.Limits, then func()) error {
	name := s.Spec().Name
	if name != "" {
		if rec, err := t.stopped(name); err == nil && rec.Info.ID != without {
			return nameInUse(s, &rec.Info.Spec, rec.Info.ID)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.all {
		if name != "" && other.ID() != without && !other.Done() && (other.Spec().Name == name || other.ID() == name) {
			return nameInUse(s, other.Spec(), other.ID())
		}
	}
	if err := t.fits(s, without, most); err != nil {
		return err
	}
	then()
	return nil
}

// nameInUse returns the error for a name that another sandbox has. It gives its id only to frontends that see that
// sandbox.
func nameInUse(s *sandbox.Sandbox, other *runner.Spec, id string) error {
	of := s.Spec().Frontend
	name := of.Short(s.Spec().Name)
	if !of.Sees(other) {
		return ipc.Errorf(ipc.CodeExists, "create sandbox %q: the name is in use", name)
	}
	return ipc.Errorf(ipc.CodeExists, "create sandbox %q: the name is in use by %s", name, id)
}

// find returns the sandbox with that id or name. It prefers a live one to one that is being removed from the table.
func (t *table) find(idOrName string) (*sandbox.Sandbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.all[idOrName]; s != nil {
		return s, nil
	}
	var done *sandbox.Sandbox
	for _, s := range t.all {
		switch {
		case idOrName == "" || s.Spec().Name != idOrName:
		case s.Done():
			done = s
		default:
			return s, nil
		}
	}
	if done != nil {
		return done, nil
	}
	return nil, ipc.NoSuchSandbox(idOrName)
}

// list returns the live and the persistent sandboxes, oldest first.
func (t *table) list() ([]runner.Info, error) {
	t.mu.Lock()
	var live []*sandbox.Sandbox
	for _, s := range t.all {
		live = append(live, s)
	}
	t.mu.Unlock()
	infos, ids := make([]runner.Info, 0, len(live)), map[string]bool{}
	for _, s := range live {
		if s.Done() { // it is being removed from the table
			continue
		}
		infos, ids[s.ID()] = append(infos, s.Info()), true
	}
	stopped, err := t.listStopped(ids)
	if err != nil {
		return nil, err
	}
	infos = append(infos, stopped...)
	slices.SortFunc(infos, api.OlderFirst)
	return infos, nil
}

// locate finds the sandbox with that id or name: a live one, or the record of one that has files but no processes
// of this runner.
func (t *table) locate(idOrName string) (*sandbox.Sandbox, store.Record, error) {
	for {
		s, unknown := t.find(idOrName)
		if unknown == nil && !(s.Done() && s.Stays()) {
			return s, store.Record{}, nil
		}
		d, err := t.machine.Store()
		if err != nil {
			return nil, store.Record{}, unknown
		}
		rec, err := d.Find(idOrName, t.ids())
		switch {
		case err != nil && unknown == nil: // it was there a moment ago
			return nil, rec, ipc.Errorf(ipc.CodeNoSuchSandbox, "%w", err)
		case err != nil:
			return nil, rec, unknown
		case !t.lives(rec.Info.ID):
			return nil, rec, nil
		}
		idOrName = rec.Info.ID // it was restarted meanwhile
	}
}

// live finds a sandbox that has processes of this runner.
func (t *table) live(idOrName string) (*sandbox.Sandbox, error) {
	s, rec, err := t.locate(idOrName)
	if err == nil && s == nil {
		err = sandbox.ErrStopped(t.machine.Released(rec))
	}
	return s, err
}

// stopped finds a sandbox that has files but no processes of this runner.
func (t *table) stopped(idOrName string) (store.Record, error) {
	if d, err := t.machine.Store(); err == nil {
		rec, err := d.Find(idOrName, t.ids())
		if err == nil && !t.lives(rec.Info.ID) {
			return rec, nil
		}
	}
	return store.Record{}, ipc.NoSuchSandbox(idOrName)
}

// ids returns the ids of the live sandboxes, whose records need not be read.
func (t *table) ids() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make(map[string]bool, len(t.all))
	for id, s := range t.all {
		if !s.Done() {
			ids[id] = true
		}
	}
	return ids
}

func (t *table) lives(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[id]
	return s != nil && !s.Done()
}

// claimAgain registers s, unless it is live already. It then returns the live sandbox.
func (t *table) claimAgain(s *sandbox.Sandbox, most *runner.Limits) (other *sandbox.Sandbox, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.all[s.ID()]; other != nil && !other.Done() {
		return other, nil
	}
	if err := t.fits(s, "", most); err != nil {
		return nil, err
	}
	t.all[s.ID()] = s
	t.served = true
	return nil, nil
}

// listStopped returns the sandboxes in the store, except those with these ids. If the store cannot be read, it returns
// an error: callers remove what no listed sandbox uses.
func (t *table) listStopped(except map[string]bool) (infos []runner.Info, err error) {
	if t.machine.Boot.SandboxRoot == "" {
		return nil, nil
	}
	d, err := t.machine.Store()
	if errors.Is(err, fs.ErrNotExist) { // no sandbox was ever stored
		return nil, nil
	}
	var all []store.Record
	if err == nil {
		all, err = d.Others(except)
	}
	for _, rec := range all {
		infos = append(infos, rec.Info)
	}
	return infos, err
}

// drop removes s from the table, unless a successor has taken its entry.
func (t *table) drop(s *sandbox.Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[s.ID()] == s {
		delete(t.all, s.ID())
		if place := t.slots[s.ID()]; place != nil {
			place.end()
		}
	}
}

// fits rejects s if the limits of s and of the other live sandboxes together exceed most. It ignores the sandbox with
// the id without. t.mu is held.
func (t *table) fits(s *sandbox.Sandbox, without string, most *runner.Limits) error {
	if most == nil {
		return nil
	}
	return limits.Fits(*most, s.Spec().Limits, t.others(s, without))
}

// changeLimits changes the limits of s that are not zero in l, if they fit with the others' limits. t.mu is held, as other
// calls add the limits up.
func (t *table) changeLimits(s *sandbox.Sandbox, l runner.Limits, most *runner.Limits) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most != nil {
		if err := limits.Fits(*most, s.OwnLimits(l), t.others(s, "")); err != nil {
			return err
		}
	}
	return s.ChangeLimits(l)
}

// others returns the limits of the live sandboxes but s and the one with the id without. t.mu is held.
func (t *table) others(s *sandbox.Sandbox, without string) (live []runner.Limits) {
	for _, other := range t.all {
		if other != s && other.ID() != without && !other.Done() {
			live = append(live, other.OwnLimits(runner.Limits{}))
		}
	}
	return live
}

// ofSpec returns the live sandboxes whose Spec satisfies such.
func (t *table) ofSpec(such func(*runner.Spec) bool) (found []*sandbox.Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		if !s.Done() && such(s.Spec()) {
			found = append(found, s)
		}
	}
	return found
}
