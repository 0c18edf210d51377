package engine

import (
	"errors"
	"fmt"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// slot is a place among the persistent sandboxes of the user. It counts from before anything of its sandbox is made. claim
// gives it to the sandbox, which then has it until the table drops it. Otherwise its holder releases it. nil is no place.
type slot struct {
	t        *table
	id       string // of the sandbox, or one that no sandbox has yet
	frontend runner.Frontend
	key      string      // that its create call names
	replaces string      // id of the sandbox that the new one replaces, which does not count beside this place; or empty
	disk     *store.Slot // shows it to other runners; nil: it is not in the store
}

// reserve takes a place for a sandbox of c, which may replace the sandbox with the id replaces: it then takes over its place.
// Reservations exclude each other, in this runner by t.counting and between runners by the lock of the store. So however
// many callers ask at once, exactly as many get a place as there are.
func (c *caller) reserve(key, replaces string) (*slot, error) {
	t := &c.e.table
	d, done, err := t.count()
	if err != nil {
		return nil, err
	}
	defer done()
	counted := t.counted(d)
	delete(counted, replaces)
	if err := admitOne(c.quota, c.frontend, counted); err != nil {
		return nil, err
	}
	s := &slot{t: t, id: sandbox.NewID(), frontend: c.frontend, key: key, replaces: replaces}
	if d != nil {
		s.disk, _ = d.Slot(s.id, string(c.frontend), replaces) // a store that cannot be written keeps no sandbox either
	}
	t.mu.Lock()
	t.slots[s.id] = s
	t.mu.Unlock()
	return s, nil
}

// count begins to count, or to give a place to a sandbox. d is nil if there is no store that other runners use.
func (t *table) count() (d *store.Store, done func(), err error) {
	t.counting.Lock()
	d, _ = t.machine.Store()
	if d == nil {
		return nil, t.counting.Unlock, nil
	}
	lock, err := d.Counting()
	switch {
	case errors.Is(err, store.ErrBusy):
		t.counting.Unlock()
		return nil, nil, ipc.Errorf(ipc.CodeBusy, "create sandbox: %w", err)
	case err != nil: // its file system has no locks
		return nil, t.counting.Unlock, nil
	}
	return d, func() { lock.Close(); t.counting.Unlock() }, nil
}

// admitOne returns an error if a user has no place for one more sandbox. counted are the frontends of the sandboxes.
func admitOne(q runner.Quota, frontend runner.Frontend, counted map[string]runner.Frontend) error {
	own := 0
	for _, f := range counted {
		if f == frontend {
			own++
		}
	}
	most, hint := q.User, "demesne ls lists sandboxes, and demesne rm ID removes one; $DEMESNE_MAX_SANDBOXES sets the maximum"
	if most <= 0 {
		most = runner.MostSandboxes
	}
	switch {
	case len(counted) >= most:
	case q.Frontend > 0 && own >= q.Frontend:
		most, hint = q.Frontend, "remove a sandbox of this namespace; max-sandboxes of the server sets the maximum"
	default:
		return nil
	}
	err := ipc.Errorf(ipc.CodeTooMany, "create sandbox: too many sandboxes (%d)", most)
	err.Hint = hint
	return err
}

// counted returns the frontends of the user's persistent sandboxes by id: of the live ones, those with a record, and those
// that have only a place yet. Snapshots do not count, and neither does a sandbox that is being replaced, nor what cannot be
// read: it cannot run. d is nil without a store.
func (t *table) counted(d *store.Store) map[string]runner.Frontend {
	counted, live, places := map[string]runner.Frontend{}, map[string]bool{}, map[string]bool{}
	var replaced []string
	t.mu.Lock()
	for id, s := range t.all {
		if spec := s.Spec(); spec.Lifetime == runner.Persistent && !s.Done() {
			counted[id], live[id] = spec.Frontend, true
		}
	}
	for id, s := range t.slots {
		if places[id] = true; t.all[id] == nil {
			counted[id] = s.frontend
		}
		replaced = append(replaced, s.replaces)
	}
	t.mu.Unlock()
	if d != nil {
		others, _ := d.Slots(places)
		for _, s := range others {
			counted[s.ID], replaced = runner.Frontend(s.Frontend), append(replaced, s.Replaces)
		}
		stopped, _ := d.Others(live)
		for _, rec := range stopped {
			if rec.Info.State != runner.Snapshot && rec.Info.State != runner.Unreadable {
				counted[rec.Info.ID] = rec.Info.Spec.Frontend
			}
		}
	}
	for _, id := range replaced {
		delete(counted, id)
	}
	return counted
}

// give gives the place to the sandbox id, between count and its end. t.mu is held.
func (s *slot) give(id string) error {
	if s.disk != nil {
		if err := s.disk.Rename(id); err != nil {
			return fmt.Errorf("create sandbox: %w", err)
		}
	}
	delete(s.t.slots, s.id)
	s.id = id
	s.t.slots[id] = s
	return nil
}

// release gives the place up, unless a sandbox holds it.
func (s *slot) release() {
	if s == nil {
		return
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.t.all[s.id] == nil {
		s.end()
	}
}

// end gives the place up. t.mu is held.
func (s *slot) end() {
	if s.t.slots[s.id] != s { // it has ended
		return
	}
	if s.disk != nil {
		s.disk.Close()
	}
	delete(s.t.slots, s.id)
}

// reserveAhead reserves a place for a create call that c is going to make. A call with a key needs none if the key has a
// sandbox, or if another call is making one: it then finds that one, or else takes a place itself.
func (c *caller) reserveAhead(r api.ReserveRequest) (api.Slot, error) {
	if r.Key != "" {
		if known, err := c.e.expects(c.frontend, r.Key); known || err != nil {
			return api.Slot{}, err
		}
	}
	s, err := c.reserve(r.Key, "")
	if err != nil {
		return api.Slot{}, err
	}
	c.keepSlot(s)
	return api.Slot{Slot: s.id}, nil
}

// keepSlot keeps a place for a create call of c. It ends with c.
func (c *caller) keepSlot(s *slot) {
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.slots[s.id] = s
	}
	c.mu.Unlock()
	if gone {
		s.release()
	}
}

// takeSlot returns the place that c reserved under that name, or nil. It then no longer ends with c.
func (c *caller) takeSlot(name string) *slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[name]
	delete(c.slots, name)
	return s
}

// expects reports whether a create call with the key finds a sandbox, now or when the calls under way have ended.
func (e *Engine) expects(frontend runner.Frontend, key string) (bool, error) {
	same := func(spec *runner.Spec) bool { return spec.Key == key && spec.Frontend == frontend }
	if len(e.table.ofSpec(same)) > 0 || e.table.reservedFor(frontend, key) {
		return true, nil
	}
	h, err := e.ofKey(frontend, key)
	return h.id != "", err
}

// reservedFor reports whether a call under way has a place for the sandbox of a key.
func (t *table) reservedFor(frontend runner.Frontend, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.key == key && s.frontend == frontend {
			return true
		}
	}
	return false
}
