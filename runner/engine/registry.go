package engine

import (
	"cmp"
	"slices"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// claim registers s under its id and name. A name belongs to one live or persistent sandbox. most bounds the limits of
// all live sandboxes together; nil: no bound.
func (e *Engine) claim(s *sandbox.Sandbox, most *runner.Limits) error {
	return e.ifFree(s, "", most, func() {
		e.sandboxes[s.ID()] = s
		e.linger.served = true
	})
}

// ifFree calls then, with e.mu held, if the name of s is free and its limits fit. It ignores the sandbox with the id
// without.
func (e *Engine) ifFree(s *sandbox.Sandbox, without string, most *runner.Limits, then func()) error {
	name := s.Spec().Name
	if name != "" {
		if rec, err := e.stopped(name); err == nil && rec.Info.ID != without {
			return nameInUse(s, &rec.Info.Spec, rec.Info.ID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.sandboxes {
		if name != "" && other.ID() != without && !other.Done() && (other.Spec().Name == name || other.ID() == name) {
			return nameInUse(s, other.Spec(), other.ID())
		}
	}
	if err := e.fits(s, without, most); err != nil {
		return err
	}
	then()
	return nil
}

// nameInUse returns the error for a name that another sandbox has. It gives its id only to doors that see that
// sandbox.
func nameInUse(s *sandbox.Sandbox, other *runner.Spec, id string) error {
	if !s.Spec().Door.Sees(other) {
		return ipc.Errorf(ipc.CodeExists, "create sandbox %q: the name is in use", s.Spec().Name)
	}
	return ipc.Errorf(ipc.CodeExists, "create sandbox %q: the name is in use by %s", s.Spec().Name, id)
}

// find returns the sandbox with that id or name. It prefers a live one to one that is being removed from the table.
func (e *Engine) find(idOrName string) (*sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sandboxes[idOrName]; s != nil {
		return s, nil
	}
	var done *sandbox.Sandbox
	for _, s := range e.sandboxes {
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
	return nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "find sandbox %q: no such sandbox", idOrName)
}

// list returns the live and the persistent sandboxes, oldest first.
func (e *Engine) list() []runner.Info {
	e.mu.Lock()
	var live []*sandbox.Sandbox
	for _, s := range e.sandboxes {
		live = append(live, s)
	}
	e.mu.Unlock()
	infos, ids := make([]runner.Info, 0, len(live)), map[string]bool{}
	for _, s := range live {
		if s.Done() { // it is being removed from the table
			continue
		}
		infos, ids[s.ID()] = append(infos, s.Info()), true
	}
	infos = append(infos, e.listStopped(ids)...)
	slices.SortFunc(infos, olderFirst)
	return infos
}

// olderFirst orders by creation time, then by id.
func olderFirst(a, b runner.Info) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// count returns the number of persistent sandboxes without snapshots. Every creation calls it, so for live
// sandboxes it only looks at the table.
func (e *Engine) count() (n int) {
	live := map[string]bool{}
	for _, s := range e.ofSpec(func(spec *runner.Spec) bool { return spec.Lifetime == runner.Persistent }) {
		live[s.ID()] = true
	}
	n = len(live)
	for _, i := range e.listStopped(live) {
		if i.State != runner.Snapshot {
			n++
		}
	}
	return n
}

// locate finds the sandbox with that id or name: a live one, or the record of one that has files but no processes
// of this runner.
func (e *Engine) locate(idOrName string) (*sandbox.Sandbox, store.Record, error) {
	for {
		s, unknown := e.find(idOrName)
		if unknown == nil && !(s.Done() && s.Stays()) {
			return s, store.Record{}, nil
		}
		d, err := e.on.Store()
		if err != nil {
			return nil, store.Record{}, unknown
		}
		rec, err := d.Find(idOrName)
		switch {
		case err != nil && unknown == nil: // it was there a moment ago
			return nil, rec, ipc.Errorf(ipc.CodeNoSuchSandbox, "%w", err)
		case err != nil:
			return nil, rec, unknown
		case !e.lives(rec.Info.ID):
			return nil, rec, nil
		}
		idOrName = rec.Info.ID // it was restarted meanwhile
	}
}

// live finds a sandbox that has processes of this runner.
func (e *Engine) live(idOrName string) (*sandbox.Sandbox, error) {
	s, rec, err := e.locate(idOrName)
	if err == nil && s == nil {
		err = sandbox.ErrStopped(rec)
	}
	return s, err
}

// stopped finds a sandbox that has files but no processes of this runner.
func (e *Engine) stopped(idOrName string) (store.Record, error) {
	if d, err := e.on.Store(); err == nil {
		rec, err := d.Find(idOrName)
		if err == nil && !e.lives(rec.Info.ID) {
			return rec, nil
		}
	}
	return store.Record{}, ipc.Errorf(ipc.CodeNoSuchSandbox, "find sandbox %q: no such sandbox", idOrName)
}

func (e *Engine) lives(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sandboxes[id]
	return s != nil && !s.Done()
}

// claimAgain registers s, unless it is live already. It then returns the live sandbox.
func (e *Engine) claimAgain(s *sandbox.Sandbox, most *runner.Limits) (other *sandbox.Sandbox, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.sandboxes[s.ID()]; other != nil && !other.Done() {
		return other, nil
	}
	if err := e.fits(s, "", most); err != nil {
		return nil, err
	}
	e.sandboxes[s.ID()] = s
	e.linger.served = true
	return nil, nil
}

// listStopped returns the stopped sandboxes, for list.
func (e *Engine) listStopped(live map[string]bool) (infos []runner.Info) {
	d, err := e.on.Store()
	if err != nil {
		return nil
	}
	for _, rec := range d.Others(live) {
		infos = append(infos, rec.Info)
	}
	return infos
}

// drop removes s from the table, unless a successor has taken its entry.
func (e *Engine) drop(s *sandbox.Sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sandboxes[s.ID()] == s {
		delete(e.sandboxes, s.ID())
	}
}

// fits rejects s if its limits and those of the other live sandboxes together exceed most. It ignores the sandbox with
// the id without. e.mu is held.
func (e *Engine) fits(s *sandbox.Sandbox, without string, most *runner.Limits) error {
	if most == nil {
		return nil
	}
	var live []runner.Limits
	for _, other := range e.sandboxes {
		if other != s && other.ID() != without && !other.Done() {
			live = append(live, other.Spec().Limits)
		}
	}
	return limits.Fits(*most, s.Spec().Limits, live)
}

// ofSpec returns the live sandboxes whose Spec satisfies such.
func (e *Engine) ofSpec(such func(*runner.Spec) bool) (found []*sandbox.Sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.sandboxes {
		if !s.Done() && such(s.Spec()) {
			found = append(found, s)
		}
	}
	return found
}
