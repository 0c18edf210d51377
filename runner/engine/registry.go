package engine

import (
	"cmp"
	"slices"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// claim registers s under its id and name. A name belongs to one live or persistent sandbox.
func (e *Engine) claim(s *sandbox) error {
	return e.ifFree(s, "", func() {
		e.sandboxes[s.id] = s
		e.linger.served = true
	})
}

// ifFree calls then, with e.mu held, if the name of s is free and its limits fit. It ignores the sandbox with the id
// without.
func (e *Engine) ifFree(s *sandbox, without string, then func()) error {
	if s.spec.Name != "" {
		if rec, err := e.stopped(s.spec.Name); err == nil && rec.Info.ID != without {
			return nameInUse(s, &rec.Info.Spec, rec.Info.ID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.sandboxes {
		if s.spec.Name != "" && other.id != without && !other.done() && (other.spec.Name == s.spec.Name || other.id == s.spec.Name) {
			return nameInUse(s, &other.spec, other.id)
		}
	}
	if err := e.fits(s, without); err != nil {
		return err
	}
	then()
	return nil
}

// nameInUse returns the error for a name that another sandbox has. It gives its id only to doors that see that
// sandbox.
func nameInUse(s *sandbox, other *runner.Spec, id string) error {
	if !s.spec.Door.Sees(other) {
		return ipc.Errorf(ipc.CodeExists, "create sandbox %q: the name is in use", s.spec.Name)
	}
	return ipc.Errorf(ipc.CodeExists, "create sandbox %q: the name is in use by %s", s.spec.Name, id)
}

// left reports whether c has disconnected.
func (c *caller) left() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// adopt makes c the owner of a one-shot sandbox. It returns false if c has disconnected.
func (c *caller) adopt(s *sandbox) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.own[s] = true
	}
	return !c.gone
}

func (c *caller) disown(s *sandbox) {
	c.mu.Lock()
	delete(c.own, s)
	c.mu.Unlock()
}

// find returns the sandbox with that id or name. It prefers a live one to one that is being removed from the table.
func (e *Engine) find(idOrName string) (*sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sandboxes[idOrName]; s != nil {
		return s, nil
	}
	var over *sandbox
	for _, s := range e.sandboxes {
		switch {
		case idOrName == "" || s.spec.Name != idOrName:
		case s.done():
			over = s
		default:
			return s, nil
		}
	}
	if over != nil {
		return over, nil
	}
	return nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "find sandbox %q: no such sandbox", idOrName)
}

func (e *Engine) findExec(t api.ExecTarget) (*execution, error) {
	e.mu.Lock()
	x := e.recent[execKey{t.Sandbox, t.Exec}]
	e.mu.Unlock()
	if x == nil {
		return nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "find command %d of sandbox %q: no such command", t.Exec, t.Sandbox)
	}
	return x, nil
}

// list returns the live and the persistent sandboxes, oldest first.
func (e *Engine) list() []runner.Info {
	e.mu.Lock()
	var boxes []*sandbox
	for _, s := range e.sandboxes {
		boxes = append(boxes, s)
	}
	e.mu.Unlock()
	infos, live := make([]runner.Info, 0, len(boxes)), map[string]bool{}
	for _, s := range boxes {
		if s.done() { // it is being removed from the table
			continue
		}
		infos, live[s.id] = append(infos, s.info()), true
	}
	infos = append(infos, e.listAsleep(live)...)
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
		live[s.id] = true
	}
	n = len(live)
	for _, i := range e.listAsleep(live) {
		if i.State != runner.Snapshot {
			n++
		}
	}
	return n
}

// validName checks the name of a sandbox; an empty name means that it has none.
func validName(name string) error {
	if name == "" {
		return nil
	}
	if err := runner.CheckName(name); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox %q: %w", name, err)
	}
	return nil
}

// locate finds the sandbox with that id or name: a live one, or the record of one that has files but no processes
// of this runner.
func (e *Engine) locate(idOrName string) (*sandbox, store.Record, error) {
	for {
		s, unknown := e.find(idOrName)
		if unknown == nil && !(s.done() && s.stays()) {
			return s, store.Record{}, nil
		}
		d, err := e.keeper()
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

// stopped finds a sandbox that has files but no processes of this runner.
func (e *Engine) stopped(idOrName string) (store.Record, error) {
	if d, err := e.keeper(); err == nil {
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
	return s != nil && !s.done()
}

// claimAgain registers s, unless it is live already. It then returns the live sandbox.
func (e *Engine) claimAgain(s *sandbox) (other *sandbox, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.sandboxes[s.id]; other != nil && !other.done() {
		return other, nil
	}
	if err := e.fits(s, ""); err != nil {
		return nil, err
	}
	e.sandboxes[s.id] = s
	e.linger.served = true
	return nil, nil
}

// listAsleep returns the stopped sandboxes, for list.
func (e *Engine) listAsleep(live map[string]bool) (infos []runner.Info) {
	d, err := e.keeper()
	if err != nil {
		return nil
	}
	for _, rec := range d.Others(live) {
		infos = append(infos, rec.Info)
	}
	return infos
}

// drop removes s from the table, unless a successor has taken its entry.
func (e *Engine) drop(s *sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sandboxes[s.id] == s {
		delete(e.sandboxes, s.id)
	}
}
