package limits

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits/cgroup"
)

// innerGroup is the group of the sandbox's processes, below the group that carries the limits.
const innerGroup = "inner"

// Group holds the limits of one sandbox. Its methods are safe for concurrent use.
type Group struct {
	host  *Host
	id    string
	first runner.Limits // resolved

	mu       sync.Mutex
	want     runner.Limits // initially first; see Change
	pid      int           // PID 1
	seats    []*group
	why      map[string]string // limit → reason why no cgroup enforces it
	affinity int               // number of processors PID 1 was bound to; 0 if it was not bound
	diskWhy  string            // why the disk limit counts more than the sandbox's files; "" if it does not
	oom      bool              // never reset once true
	several  bool              // several users may run processes: see SeveralUsers
	stop     func()            // stops the watch; nil without one
	stirred  chan struct{}     // closed by Stir; nil: no part of the watch waits for it
}

// group is the sandbox's group in one hierarchy.
type group struct {
	place *hierarchy
	outer *cgroup.Dir // carries the limits
	inner *cgroup.Dir // contains the processes; closed once PID 1 is in it
	knobs []setting   // the settings that were applied
}

// New makes the groups of the sandbox called id and sets its limits. A zero selects the default; a negative
// value disables the limit. A limit that a cgroup refuses falls back to the next mechanism, which the receipt
// names. Limits that are too small, or an id that cannot name a group, yield an *ipc.Error with CodeInvalid.
func (h *Host) New(id string, l runner.Limits) (*Group, error) {
	l = Resolve(l)
	if err := check(l); err != nil {
		return nil, err
	}
	if id == "" || id == cgroup.Leaf || id == trial || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return nil, ipc.Errorf(ipc.CodeInvalid, "make limits: %q is not a valid group name", id)
	}
	g := &Group{host: h, id: id, first: l, want: l, why: map[string]string{}}
	for _, p := range h.hierarchies {
		ks := knobsFor(p, l)
		if len(ks) == 0 && p.version == 1 { // a version 2 group is still useful for cgroup.kill
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

// seat makes id/inner in p and applies the settings, each independently.
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
	if s.inner, err = outer.Make(innerGroup); err != nil {
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

// Add moves the sandbox's PID 1 into the groups; call it before PID 1 forks. A group that PID 1 cannot enter is
// dropped, and its limits fall back to the next mechanism. Add fails if the process no longer exists or cannot
// be bound to processors.
func (g *Group) Add(pid int) error {
	if _, err := os.Lstat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return fmt.Errorf("limit process %d: %w", pid, os.ErrProcessDone)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = pid
	var kept []*group
	for _, s := range g.seats {
		if err := s.place.thread.do(func() error { return s.inner.Join(pid) }); err != nil {
			for _, k := range s.knobs {
				g.why[k.limit] = "enter cgroup: " + err.Error()
			}
			_ = s.end(g.id) // the group is still empty
			continue
		}
		s.inner.Close() // no other process joins, and each descriptor of the runner makes its forks dearer
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

// held reports whether a cgroup enforces the limit. g.mu is held.
func (g *Group) held(limit string) bool {
	s, _ := g.seatOf(limit)
	return s != nil
}

// seatOf returns the group whose setting enforces the limit, and that setting. g.mu is held.
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

// OOMKilled reports whether the memory limit killed a process of the sandbox. It uses the kernel's count of
// kills and the watchdog's record. The result is still available after Close.
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

// oomKills sums the counts of d and the groups below it. Version 1 counts a kill in the process's own group,
// which may be a group that the sandbox made (nesting).
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

// Kill kills every process of the sandbox at once where the kernel supports it (cgroup.kill, version 2).
// Elsewhere it does nothing; ending PID 1 has the same effect.
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

// Close stops the watch, kills the processes that remain, and removes the groups. A second call does nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	stop := g.stop
	g.mu.Unlock()
	if stop != nil {
		stop() // without g.mu: the watch locks it to report
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
	_ = s.outer.Remove(innerGroup) // the Remove below retries and returns the error
	s.inner.Close()
	return errors.Join(s.outer.Close(), s.place.dir.Remove(id))
}

// Memory returns the bytes that the sandbox's control group holds, and how many of them are the page cache. ok is false
// if no control group counts them.
func (g *Group) Memory() (current, cache int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, _ := g.seatOf("memory")
	if s == nil {
		return 0, 0, false
	}
	file, key := "memory.current", "file"
	if s.place.version == 1 {
		file, key = "memory.usage_in_bytes", "total_cache"
	}
	text, err := s.outer.Read(file)
	if err != nil {
		return 0, 0, false
	}
	current, err = strconv.ParseInt(text, 10, 64)
	return current, s.outer.Key("memory.stat", key), err == nil
}

// Used returns the memory that the sandbox cannot give back: without clean pages of files, which the kernel can drop.
func (g *Group) Used() int64 {
	current, _, ok := g.Memory()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ok {
		pids, _ := processes(g.pid)
		used, _ := hold(g.pid, pids, None)
		return used
	}
	s, _ := g.seatOf("memory")
	prefix := ""
	if s.place.version == 1 {
		prefix = "total_"
	}
	for key, sign := range map[string]int64{"inactive_file": -1, "active_file": -1, "file_dirty": 1, "file_writeback": 1, "dirty": 1, "writeback": 1} {
		current += sign * s.outer.Key("memory.stat", prefix+key)
	}
	return current
}
