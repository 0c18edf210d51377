package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/server"
	"demesne/session"
	"demesne/session/events"
)

// store has the server's sandboxes.
type store struct {
	backend  server.Sandboxes
	opts     Options
	dir      *os.Root
	ledger   ledger
	records  fsutil.Records[record]
	volumes  *volumes
	pictures pictures

	orphans []*entry // of a server before, whose creation no client saw the end of

	mu        sync.Mutex
	entries   map[string]*entry
	claims    map[string]chan struct{} // by key: closed when a create request has ended
	snapshots map[string]*snapshot
	templates map[string]*template
	closed    bool

	snapshotRecords fsutil.Records[snapshot]
	templateRecords fsutil.Records[template]
}

// entry is a sandbox. Its methods may be called concurrently.
type entry struct {
	store *store
	turn  sync.Mutex // held while the sandbox changes its state
	going sync.Mutex // held while the sandbox is removed

	mu       sync.Mutex
	rec      record // ID, Token, TrafficToken and Started do not change
	live     server.Sandbox
	stop     func() // of the timer
	accounts map[string]account
	procs    procTable
	contexts contextTable
	begun    bool // this server has started the program of the template
	mounted  []*volume
	samples  []sample
	events   []logEntry
}

// openStore reads the records, removes sandboxes that were never answered to a client, and starts the timers.
func openStore(ctx context.Context, o Options) (*store, error) {
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	dir, err := os.OpenRoot(o.State)
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	s := &store{
		backend: o.Backend, opts: o, dir: dir, entries: map[string]*entry{}, claims: map[string]chan struct{}{}, records: recordsOf[record](dir, "sandboxes"),
		snapshotRecords: recordsOf[snapshot](dir, "snapshots"), templateRecords: recordsOf[template](dir, "templates"),
	}
	s.ledger.most, s.records.Volatile = o.Quota, true // the runner's record of a sandbox is durable
	all, err := s.records.Load()
	for id, rec := range all {
		s.entries[id] = &entry{store: s, rec: *rec}
	}
	var err1, err2 error
	s.snapshots, err1 = s.snapshotRecords.Load()
	s.templates, err2 = s.templateRecords.Load()
	s.pictures.store = s
	err = errors.Join(err, err1, err2, s.pictures.open(), dir.RemoveAll(uploadDir), dir.RemoveAll(workDir)) // no build outlives the server
	s.ledger.add(Stored{Snapshots: int64(len(s.snapshots)), Templates: int64(len(s.templates))})
	if err != nil || len(s.entries) == 0 {
		return s, err
	}
	return s, s.adopt(ctx)
}

// adopt compares the records with the runner's sandboxes.
func (s *store) adopt(ctx context.Context) error {
	infos, err := s.backend.List(ctx)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	states := map[string]runner.State{}
	for _, i := range infos {
		states[strings.TrimPrefix(i.Name, prefix)] = i.State
	}
	for id, e := range s.entries {
		switch state, there := states[id]; {
		case e.rec.State == creating:
			delete(s.entries, id)
			s.orphans = append(s.orphans, e)
		case !there || state == runner.Ended:
			delete(s.entries, id)
			s.records.Remove(id)
		default:
			// The commands of the server before ended with it, so a pause kept nothing but what they had started.
			e.note("info", "the server has found the sandbox again")
			e.arm()
		}
	}
	return nil
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.entries {
		e.mu.Lock()
		if e.stop != nil {
			e.stop()
		}
		e.mu.Unlock()
	}
}

// get returns a sandbox, or nil.
func (s *store) get(id string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[id]
}

// all returns the sandboxes that clients know, the newest first.
func (s *store) all() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*entry
	for _, e := range s.entries {
		if e.state() != creating {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(b.rec.Started.Compare(a.rec.Started), strings.Compare(a.rec.ID, b.rec.ID))
	})
	return all
}

// removeTime bounds the removal of a sandbox that no client waits for.
const removeTime = runner.RemoveTime

// appearTime is how long the runner may go on making a sandbox whose caller has left, and appearEvery how often discard
// looks for it.
const (
	appearTime  = 10 * time.Second
	appearEvery = 250 * time.Millisecond
)

// discard removes a sandbox without a client, which the runner may be making still.
func (s *store) discard(e *entry) {
	ctx, cancel := context.WithTimeout(context.Background(), appearTime+removeTime)
	defer cancel()
	err := s.backend.Remove(ctx, e.rec.name())
	for end := time.Now().Add(appearTime); errors.Is(err, session.ErrNotFound) && time.Now().Before(end) && !s.isClosed(); {
		time.Sleep(appearEvery)
		err = s.backend.Remove(ctx, e.rec.name())
	}
	switch {
	case errors.Is(err, session.ErrNotFound) && s.isClosed(): // the next server looks for it
	case err != nil && !errors.Is(err, session.ErrNotFound):
		s.opts.Log.Printf("remove sandbox %s: %v", e.rec.ID, err)
	default:
		e.unmount()
		s.records.Remove(e.rec.ID)
	}
}

// mount counts the volumes of sandboxes that an earlier server left, and ends sandboxes that no client knows.
func (s *store) mount() {
	for _, e := range s.entries {
		e.mount(true)
	}
	for _, e := range s.orphans {
		e.mount(true)
		go s.discard(e)
	}
	s.orphans = nil
}

// mount counts the volumes that the sandbox mounts: see [holding]. It fails if one could pass the namespace's ceiling,
// unless force is set.
func (e *entry) mount(force bool) error {
	for _, m := range e.rec.Volumes {
		one := e.store.volumes.named(m.Name)
		if one == nil {
			continue // the sandbox is not made
		}
		if err := one.held.mount(force); err != nil {
			e.unmount()
			return fmt.Errorf("mount volume %q: %w", one.Name, err)
		}
		e.mounted = append(e.mounted, one)
	}
	return nil
}

// unmount ends that. The sandbox has ended.
func (e *entry) unmount() {
	e.mu.Lock()
	all := e.mounted
	e.mounted = nil
	e.mu.Unlock()
	for _, one := range all {
		one.held.unmount(e.store.dir, path.Join(volumeData, one.ID))
	}
}

func (s *store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// make makes a sandbox with f, which fails with an ended context if the sandbox may have been made in spite of it. A server
// that is killed meanwhile removes it at its next start. No client finds the sandbox before it is made; [Server.Credentials]
// does. Then make starts the program of the sandbox, and removes the sandbox if that fails.
func (s *store) make(ctx context.Context, rec record, f func(name string) (server.Sandbox, error)) (*entry, error) {
	e := &entry{store: s, rec: rec}
	e.rec.State = creating
	if err := e.mount(false); err != nil {
		return nil, err
	}
	if err := e.save(); err != nil {
		e.unmount()
		return nil, err
	}
	s.list(e)
	live, err := f(rec.name())
	if err == nil {
		e.mu.Lock()
		e.live, e.rec.State = live, running
		err = e.save()
		e.mu.Unlock()
	}
	if err != nil {
		s.unlist(e)
		if live != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			go s.discard(e)
		} else {
			e.unmount()
			s.records.Remove(rec.ID)
		}
		return nil, err
	}
	e.note("info", "created from template "+rec.Template)
	e.arm()
	if err := e.begin(ctx, rec.Start); err != nil {
		if _, left := e.remove(context.WithoutCancel(ctx)); left != nil {
			s.opts.Log.Printf("remove sandbox %s: %v", rec.ID, left)
		}
		return nil, err
	}
	return e, nil
}

func (s *store) list(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[e.rec.ID] = e
}

func (s *store) unlist(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, e.rec.ID)
}

// remove removes a sandbox. It reports false if another call has removed it.
func (e *entry) remove(ctx context.Context) (bool, error) {
	e.turn.Lock()
	defer e.turn.Unlock()
	s := e.store
	if s.get(e.rec.ID) != e {
		return false, nil
	}
	if err := e.end(ctx); err != nil {
		return false, err
	}
	e.mu.Lock()
	e.rec.State = ended
	s.records.Remove(e.rec.ID)
	e.mu.Unlock()
	e.arm()
	e.contexts.close()
	return true, nil
}

// end removes the sandbox from the runner and from the list.
func (e *entry) end(ctx context.Context) error {
	e.going.Lock()
	defer e.going.Unlock()
	err := e.store.backend.Remove(ctx, e.rec.name())
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return err
	}
	e.store.unlist(e)
	e.unmount()
	e.store.pictures.collect() // it may have used one without a name
	return nil
}

// removed reports whether the sandbox was removed. It waits for a removal that is under way, so that a process that ends
// by it can tell.
func (e *entry) removed() bool {
	e.going.Lock()
	defer e.going.Unlock()
	return e.store.get(e.rec.ID) != e
}

// save writes the record. e.mu need not be held by its only user.
func (e *entry) save() error { return e.store.records.Put(e.rec.ID, &e.rec) }

// change changes the record with f, and writes it. A removed sandbox has none.
func (e *entry) change(f func(*record)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rec.State == ended {
		return session.ErrNotFound
	}
	f(&e.rec)
	return e.save()
}

// snap returns a copy of the record.
func (e *entry) snap() record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec
}

func (e *entry) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.State
}

func (e *entry) running() bool { return e.state() == running }

// arm sets the timer for the end of the sandbox.
func (e *entry) arm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
	if e.rec.State == running {
		e.stop = after(time.Until(e.rec.End), e.expire)
	}
}

// expire pauses or removes a sandbox whose time is over.
func (e *entry) expire() {
	rec := e.snap()
	if rec.State != running || time.Now().Before(rec.End) {
		return
	}
	ctx, cancel := context.WithTimeout(events.WithCause(context.Background(), events.Timeout), removeTime)
	defer cancel()
	var err error
	if rec.AutoPause {
		_, err = e.pause(ctx, !rec.PauseCold)
	} else {
		_, err = e.remove(ctx)
	}
	if err != nil {
		e.store.opts.Log.Printf("end sandbox %s: %v", rec.ID, err)
		after(time.Minute, e.expire)
	}
}

// pause pauses a sandbox. It reports false if it is paused.
func (e *entry) pause(ctx context.Context, memory bool) (bool, error) {
	e.turn.Lock()
	defer e.turn.Unlock()
	if !e.running() {
		return false, nil
	}
	do := e.store.backend.Pause
	if !memory {
		e.contexts.close()
		do = e.store.backend.Stop
	}
	// The state changes first: a command that starts meanwhile would resume the processes.
	if err := e.change(func(r *record) { r.State, r.Cold = paused, !memory }); err != nil {
		return false, err
	}
	if err := do(ctx, e.rec.name()); err != nil {
		e.change(func(r *record) { r.State = running })
		return false, err
	}
	e.arm()
	e.note("info", "paused")
	return true, nil
}

// with calls f with the sandbox, and once more if the runner had ended meanwhile. So f must have had no effect if its error
// is session.ErrNotFound.
func (e *entry) with(ctx context.Context, f func(server.Sandbox) error) error {
	e.mu.Lock()
	live := e.live
	e.mu.Unlock()
	if live != nil {
		err := f(live)
		if !errors.Is(err, session.ErrNotFound) {
			return err
		}
	}
	live, err := e.store.backend.Open(ctx, e.rec.name())
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.live = live
	e.mu.Unlock()
	return f(live)
}
