package limits

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits/cgroup"
)

// box is the group the processes are in, below the one with the limits.
const box = "box"

// Group is one sandbox's limits. Its methods may be called from any goroutine.
type Group struct {
	host *Host
	id   string
	want runner.Limits // resolved

	mu       sync.Mutex
	seats    []*group
	why      map[string]string // limit → why no cgroup holds it
	affinity int               // processors PID 1 was bound to; 0: not
	diskWhy  string            // unless the disk limit counts what the sandbox wrote
	oom      bool              // told once, told for good
	stop     func()            // of the watch, if there is one
}

// groupIn is the sandbox's group in one hierarchy.
type group struct {
	place *hierarchy
	outer *cgroup.Dir // the limits
	box   *cgroup.Dir // the processes
	knobs []setting   // those that were set
}

// New makes the groups of the sandbox called id and sets its limits, of which zero
// is the default and negative none. A limit that a cgroup refuses is not lost: it
// falls to the next mechanism and the receipt says so. An error is a *ipc.Error of
// CodeInvalid, for limits nothing can live with.
func (h *Host) New(id string, l runner.Limits) (*Group, error) {
	l = Resolve(l)
	if err := check(l); err != nil {
		return nil, err
	}
	if id == "" || id == leaf || id == trial || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return nil, ipc.Errorf(ipc.CodeInvalid, "make limits: %q cannot name a group", id)
	}
	g := &Group{host: h, id: id, want: l, why: map[string]string{}}
	for _, p := range h.places {
		ks := knobsFor(p, l)
		if len(ks) == 0 && p.version == 1 { // version 2's is of use for cgroup.kill
			continue
		}
		s, err := g.seat(p, ks)
		if err != nil {
			for _, k := range ks {
				g.why[k.limit] = err.Error()
			}
			continue
		}
		g.seats = append(g.seats, s)
	}
	return g, nil
}

// groupIn makes id/box in p and turns the knobs, each on its own.
func (g *Group) seat(p *hierarchy, ks []setting) (*group, error) {
	outer, err := p.dir.Make(g.id)
	if err != nil {
		return nil, err
	}
	s := &group{place: p, outer: outer}
	for _, k := range ks {
		if err := set(outer, k.settings(g.want)); err != nil {
			g.why[k.limit] = err.Error()
			continue
		}
		s.knobs = append(s.knobs, k)
	}
	if s.box, err = outer.Make(box); err != nil {
		return nil, errors.Join(err, outer.Close(), p.dir.Remove(g.id))
	}
	return s, nil
}

func set(d *cgroup.Dir, settings []write) error {
	for _, s := range settings {
		err := d.Write(s.file, s.value)
		if err != nil && !(s.optional && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// Add puts the sandbox's PID 1 into the groups, before it forks anything. A group
// it cannot enter is dropped: its limits fall to the next mechanism. An error
// means that the process is gone.
func (g *Group) Add(pid int) error {
	if _, err := os.Lstat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return fmt.Errorf("limit process %d: %w", pid, os.ErrProcessDone)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var kept []*group
	for _, s := range g.seats {
		if err := s.place.thread.do(func() error { return s.box.Join(pid) }); err != nil {
			for _, k := range s.knobs {
				g.why[k.limit] = "enter cgroup: " + err.Error()
			}
			_ = s.end(g.id) // empty: nobody entered
			continue
		}
		kept = append(kept, s)
	}
	g.seats = kept
	if g.want.CPUs != None && !g.held("cpus") {
		n, err := bind(pid, g.want.CPUs)
		if err != nil {
			return fmt.Errorf("limit process %d: %w", pid, err)
		}
		g.affinity = n
	}
	return nil
}

// held says whether a cgroup holds the limit. g.mu is held.
func (g *Group) held(limit string) bool {
	s, _ := g.seatOf(limit)
	return s != nil
}

// seatOf returns the seat whose knob holds the limit. g.mu is held.
func (g *Group) seatOf(limit string) (*group, *setting) {
	for _, s := range g.seats {
		for i := range s.knobs {
			if s.knobs[i].limit == limit {
				return s, &s.knobs[i]
			}
		}
	}
	return nil, nil
}

// OOMKilled says whether the memory limit killed a process of the sandbox, by the
// kernel's own count of kills or by the watchdog. It remembers after Close.
func (g *Group) OOMKilled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.oomKilled()
}

func (g *Group) oomKilled() bool {
	if s, k := g.seatOf("memory"); !g.oom && s != nil {
		g.oom = oomKills(s.outer, k.oom, 4) > 0
	}
	return g.oom
}

// oomKills sums the counts of d and the groups below it: version 1 counts a kill
// where the process was, and that may be a group the sandbox made (nesting).
func oomKills(d *cgroup.Dir, file string, depth int) int64 {
	n := d.Key(file, "oom_kill")
	names, err := d.Children()
	if err != nil || depth == 0 || n > 0 {
		return n
	}
	for _, name := range names {
		if sub, err := d.Sub(name); err == nil {
			n += oomKills(sub, file, depth-1)
			sub.Close()
		}
	}
	return n
}

// Kill kills every process of the sandbox at once where the kernel can
// (cgroup.kill). Elsewhere it does nothing: the end of PID 1 has the same effect.
func (g *Group) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.seats {
		if s.place.version == 2 {
			if err := s.outer.Kill(); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("kill group %q: %w", g.id, err)
			}
		}
	}
	return nil
}

// Close stops watching and removes the groups, ending what is still in them. It
// may be called twice.
func (g *Group) Close() error {
	g.mu.Lock()
	stop := g.stop
	g.mu.Unlock()
	if stop != nil {
		stop() // outside the lock: the watch takes it to report
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.oomKilled()
	g.host.pressure.forget(g)
	var errs []error
	for _, s := range g.seats {
		errs = append(errs, s.end(g.id))
	}
	g.seats = nil
	return errors.Join(errs...)
}

func (s *group) end(id string) error {
	_ = s.outer.Remove(box) // Remove(id) tries again and tells
	return errors.Join(s.box.Close(), s.outer.Close(), s.place.dir.Remove(id))
}
