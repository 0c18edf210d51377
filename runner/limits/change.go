package limits

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/ipc"
)

// Change changes the limits of a running sandbox that are not zero in l. On an error all limits are as before.
//
// A control group changes the limit in the kernel. Without one the memory watchdog has the new limit from its next look on,
// and processors are chosen again for all processes. The resource limits of processes cannot rise, because PID 1 has the
// first ones and only real root could raise them. So the number of processes stays below the first limit, and without a
// control group it cannot change.
func (g *Group) Change(l runner.Limits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, err := g.changed(l)
	if err != nil {
		return err
	}
	before := g.want
	var undo []func()
	for _, limit := range []string{"memory", "pids", "cpus"} {
		if !differs(before, next, limit) {
			continue
		}
		if err := g.apply(limit, before, next); err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
			return fmt.Errorf("change %s limit: %w", limit, err)
		}
		undo = append(undo, func() { _ = g.apply(limit, next, before) })
	}
	g.want = next
	return nil
}

// changed returns the limits with the changes of l. g.mu is held.
func (g *Group) changed(l runner.Limits) (next runner.Limits, err error) {
	next = g.want
	switch {
	case l.Disk != 0 || l.Files != 0:
		return next, ipc.Errorf(ipc.CodeInvalid, "change limits: disk and files cannot change")
	case l.Memory < 0 || l.PIDs < 0 || l.CPUs < 0:
		return next, ipc.Errorf(ipc.CodeInvalid, "change limits: a limit cannot be removed")
	case g.first.PIDs != None && l.PIDs > g.first.PIDs:
		return next, ipc.Errorf(ipc.CodeInvalid, "change pids limit: %d is above %d, with which the sandbox began", l.PIDs, g.first.PIDs)
	case l.PIDs > 0 && l.PIDs != g.want.PIDs && !g.held("pids") && !g.seatable("pids"):
		return next, ipc.Errorf(ipc.CodeInvalid, "change pids limit: no control group enforces it")
	}
	next = l.Over(g.want)
	return next, check(next)
}

func differs(a, b runner.Limits, limit string) bool {
	switch limit {
	case "memory":
		return a.Memory != b.Memory
	case "pids":
		return a.PIDs != b.PIDs
	}
	return a.CPUs != b.CPUs
}

// apply changes one limit from one value to another, by the mechanism that enforces it. g.mu is held.
func (g *Group) apply(limit string, from, to runner.Limits) error {
	s, k := g.seatOf(limit)
	if s == nil {
		s, k = g.seatFor(limit)
	}
	if s != nil {
		if !wanted(to, limit) { // an undone change to a sandbox without the limit
			return nil
		}
		all := slices.Clone(k.settings(to))
		if limit == "memory" && to.Memory > from.Memory { // version 1: the limit is never above that with swap
			slices.Reverse(all)
		}
		if err := set(s.outer, all); err != nil {
			return err
		}
		if !g.held(limit) {
			s.knobs = append(s.knobs, *k)
		}
		return nil
	}
	if limit == "cpus" {
		if g.why[limit] == "" && !wanted(from, limit) {
			g.why[limit] = "it was set while the sandbox ran"
		}
		return g.rebind(to.CPUs)
	}
	return nil // the watchdog reads it
}

// seatFor returns a group that could enforce a limit which the sandbox did not have so far. g.mu is held.
func (g *Group) seatFor(limit string) (*group, *setting) {
	if wanted(g.want, limit) {
		return nil, nil // it was tried
	}
	for _, s := range g.seats {
		for i := range knobs {
			if k := &knobs[i]; k.limit == limit && k.version == s.place.version && slices.Contains(s.place.controllers, k.controller) {
				return s, k
			}
		}
	}
	return nil, nil
}

func (g *Group) seatable(limit string) bool {
	s, _ := g.seatFor(limit)
	return s != nil
}

// rebind restricts all processes of the sandbox to ⌈cpus⌉ of the runner's processors; None: to all.
func (g *Group) rebind(cpus float64) error {
	var have unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return err
	}
	if cpus == None {
		cpus = float64(have.Count())
	}
	want := choose(&have, ceil(cpus), g.pid)
	if err := bindAll(&want, func() []int { pids, _ := processes(g.pid); return pids }); err != nil {
		return err
	}
	g.affinity = want.Count()
	return nil
}

// watchedMemory returns the limit that the watchdog enforces, or None.
func (g *Group) watchedMemory() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held("memory") {
		return None
	}
	return g.want.Memory
}

// SeveralUsers tells the group that several users of the sandbox may run processes. RLIMIT_NPROC then bounds each of them, so
// the watchdog counts all. It reports whether this changes the receipt.
func (g *Group) SeveralUsers() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.several
	g.several = true
	return !before && g.want.PIDs != None && !g.held("pids")
}

// watchedPIDs returns the number of processes and threads that the watchdog allows, or None.
func (g *Group) watchedPIDs() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.want.PIDs == None || g.held("pids") || !g.several && !g.host.exempts {
		return None
	}
	return g.want.PIDs + ownThreads
}

func (g *Group) memoryLimit() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.want.Memory
}

// least returns the smaller of two limits.
func least(a, b int64) int64 {
	if a == None || b != None && b < a {
		return b
	}
	return a
}
