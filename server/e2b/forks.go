package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"demesne/server"
	"demesne/session"
)

// snapshot is the record of a snapshot.
type snapshot struct {
	ID      string        `json:"id"`
	Names   []string      `json:"names"`
	Sandbox string        `json:"sandbox"`
	Volumes []volumeMount `json:"volumes,omitempty"` // a sandbox from the snapshot mounts them
	Start   *startup      `json:"start,omitempty"`
}

// name is the snapshot's name in the runner.
func (s *snapshot) name() string { return prefix + "snap-" + s.ID }

// findSnapshot returns the snapshot of an id or a name. mu is held.
func (st *store) findSnapshot(id string) *snapshot {
	if s := st.snapshots[strings.TrimSuffix(id, ":default")]; s != nil {
		return s
	}
	for _, s := range st.snapshots {
		for _, n := range s.Names {
			if n == id || n == id+":default" {
				return s
			}
		}
	}
	return nil
}

// most bounds the forks of one call.
const maxForks = 100

func (s *Server) fork(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}
	e, err := s.found(r, &q)
	if err != nil {
		return err
	}
	n := 1
	if q.Count != nil {
		n = *q.Count
	}
	d, err := seconds(q.Timeout, 15)
	if n < 1 || n > maxForks {
		err = fmt.Errorf("%w: count %d: must be from 1 to %d", session.ErrInvalid, n, maxForks)
	}
	if err != nil {
		return err
	}
	results := make([]forked, n)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = s.forkOne(r.Context(), e, d) })
	}
	all.Wait()
	return answer(w, http.StatusCreated, results)
}

// forked is the result of one of several forks.
type forked struct {
	Sandbox *created `json:"sandbox,omitempty"`
	Error   *problem `json:"error,omitempty"`
}

type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (s *Server) forkOne(ctx context.Context, from *entry, d time.Duration) forked {
	rec := from.snap()
	now := time.Now().UTC()
	rec.ID, rec.Token, rec.Started, rec.End, rec.Cold, rec.Creation = s.opts.newSandboxID(), newToken(), now, now.Add(d), false, nil
	if rec.TrafficToken != "" {
		rec.TrafficToken = newToken()
	}
	e, err := s.store.make(ctx, rec, func(name string) (server.Sandbox, error) {
		if err := s.opts.Backend.Fork(ctx, from.rec.name(), name); err != nil {
			return nil, err
		}
		sb, err := s.opts.Backend.Open(ctx, name)
		if err != nil {
			s.opts.Backend.Remove(context.WithoutCancel(ctx), name)
		}
		return sb, err
	})
	if err != nil {
		return forked{Error: &problem{statusOf(err), err.Error()}}
	}
	c := s.created(e.snap())
	return forked{Sandbox: &c}
}

// snapshotInfo is a snapshot in answers.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string `json:"name"`
	}
	e, err := s.found(r, &q)
	if err != nil {
		return err
	}
	snap := &snapshot{ID: newID(), Names: []string{}, Sandbox: e.rec.ID, Volumes: e.snap().Volumes, Start: e.snap().Start}
	if q.Name != "" {
		snap.Names = append(snap.Names, q.Name)
	}
	if err := s.store.ledger.take(Stored{Snapshots: 1}); err != nil {
		return err
	}
	err = s.opts.Backend.Snapshot(r.Context(), e.rec.name(), snap.name())
	if err == nil {
		if err = s.store.snapshotRecords.Put(snap.ID, snap); err != nil {
			s.opts.Backend.Remove(context.WithoutCancel(r.Context()), snap.name())
		}
	}
	if err != nil {
		s.store.ledger.add(Stored{Snapshots: -1})
		return err
	}
	s.store.mu.Lock()
	s.store.snapshots[snap.ID] = snap
	s.store.mu.Unlock()
	return answer(w, http.StatusCreated, snapshotInfo{snap.ID, snap.Names})
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p, err := pageOf(q)
	if err != nil {
		return err
	}
	all := []snapshotInfo{}
	s.store.mu.Lock()
	for id := range sortedKeys(s.store.snapshots) {
		snap := s.store.snapshots[id]
		if of := q.Get("sandboxID"); of != "" && of != snap.Sandbox {
			continue
		}
		if name := q.Get("name"); name != "" && s.store.findSnapshot(name) != snap {
			continue
		}
		all = append(all, snapshotInfo{snap.ID, snap.Names})
	}
	s.store.mu.Unlock()
	return answer(w, http.StatusOK, cut(w, p, all, func(i snapshotInfo) string { return i.SnapshotID }))
}

// removeTemplate removes a snapshot, or a template that was built here.
func (s *Server) removeTemplate(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	s.store.mu.Lock()
	snap, t := s.store.findSnapshot(id), s.store.findTemplate(id)
	s.store.mu.Unlock()
	switch {
	case snap != nil:
		if err := s.opts.Backend.Remove(r.Context(), snap.name()); err != nil && !errors.Is(err, session.ErrNotFound) {
			return err
		}
		s.store.mu.Lock()
		if s.store.snapshots[snap.ID] == snap {
			delete(s.store.snapshots, snap.ID)
			s.store.ledger.add(Stored{Snapshots: -1})
		}
		s.store.mu.Unlock()
		s.store.snapshotRecords.Remove(snap.ID)
	case t != nil:
		s.store.forget(t)
		s.builds.forgetTemplate(t)
	default:
		return notFound("template", id)
	}
	s.store.pictures.collect()
	return empty(w)
}
