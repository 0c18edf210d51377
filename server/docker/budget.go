package docker

import (
	"cmp"
	"net/http"

	"demesne/runner"
	"demesne/session"
)

// share is the part of the limits that a container gets if its client names none.
const share = 8

// The least limits of a container by default.
const leastMemory, leastPIDs, leastDisk, leastCPUs = 64 << 20, 32, 64 << 20, 0.01

// part returns the part of a limit that a container gets by default: -1, none, if there is no limit.
func part(all, least int64) int64 {
	if all <= 0 {
		return -1
	}
	return min(all, max(all/share, least))
}

// askLimits sets the limits of a container: what its client asks for, or a share of all.
func (c *container) askLimits(most runner.Limits) error {
	h := c.body.HostConfig
	l := runner.Limits{Memory: h.Memory, Files: most.Files}
	switch {
	case h.NanoCpus > 0:
		l.CPUs = float64(h.NanoCpus) / 1e9
	case h.CpuQuota > 0:
		l.CPUs = float64(h.CpuQuota) / float64(cmp.Or(max(0, h.CpuPeriod), 100_000))
	}
	if h.PidsLimit != nil && *h.PidsLimit > 0 {
		l.PIDs = *h.PidsLimit
	}
	if size := h.StorageOpt["size"]; size != "" {
		if l.Disk = sizeWord(size); l.Disk < 0 {
			return fail(http.StatusBadRequest, "invalid size: %.32q", size)
		}
	}
	l.Memory, l.Disk, l.CPUs = max(0, l.Memory), max(0, l.Disk), max(0, l.CPUs)
	c.create.Spec.Limits = l.Over(partOf(most))
	return nil
}

// partOf returns the limits that a container gets by default.
func partOf(most runner.Limits) runner.Limits {
	l := runner.Limits{Memory: part(most.Memory, leastMemory), PIDs: part(most.PIDs, leastPIDs), Disk: part(most.Disk, leastDisk), CPUs: -1}
	if most.CPUs > 0 {
		l.CPUs = max(most.CPUs/share, leastCPUs)
	}
	return l
}

// claim makes a change that takes limits, and has the runner lower the parent's own first: parent and containers together never
// have more than the parent began with. A change that fails is undone. change and undo have s.mu held.
func (s *server) claim(change func() error, undo func()) error {
	s.lending.Lock()
	defer s.lending.Unlock()
	s.mu.Lock()
	err := change()
	lent, id := s.lent(), s.sandbox
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = s.session.With(s.ctx, func(e session.Engine) error {
		return e.ChangeLimits(s.ctx, runner.LimitChange{Sandbox: id, Lent: &lent})
	})
	if err != nil {
		s.mu.Lock()
		undo()
		s.mu.Unlock()
		return fail(http.StatusConflict, "the sandbox cannot spare these limits: %v", err)
	}
	return nil
}

// settle gives limits back to the parent after something ended. A parent that has ended has none.
func (s *server) settle() { _ = s.claim(func() error { return nil }, func() {}) }

// lent returns the memory and the processors that the parent cannot have. s.mu is held.
func (s *server) lent() (l runner.Limits) {
	for _, one := range s.taken() {
		l.Memory += max(0, one.Memory)
		l.CPUs += max(0, one.CPUs)
	}
	return l
}

// taken returns the limits of all containers, volumes, built layers, contexts and of the build that runs. s.mu is held.
func (s *server) taken() []runner.Limits {
	all := []runner.Limits{s.step, {Disk: s.layers + s.contexts}}
	for _, c := range s.containers {
		all = append(all, c.create.Spec.Limits)
	}
	for _, v := range s.volumes {
		all = append(all, runner.Limits{Disk: v.disk})
	}
	return all
}

// reserve checks that a new container fits. Each of its volumes may be filled by it. s.mu is held.
func (s *server) reserve(c *container, most runner.Limits) error {
	asked := []runner.Limits{c.create.Spec.Limits}
	disk := c.create.Spec.Limits.Disk
	volumes := map[*volume]bool{}
	for _, v := range c.volumes {
		if !volumes[v] && disk > v.disk {
			asked = append(asked, runner.Limits{Disk: disk - v.disk})
		}
		volumes[v] = true
	}
	if err := s.fits(most, asked...); err != nil {
		return err
	}
	for v := range volumes {
		v.disk = max(v.disk, disk)
	}
	return nil
}

// fits checks that something new fits into the limits of all. Without a limit of its own, it needs the whole. s.mu is held.
func (s *server) fits(most runner.Limits, asked ...runner.Limits) error {
	for _, t := range []struct {
		name string
		of   func(runner.Limits) float64
	}{
		{"memory", func(l runner.Limits) float64 { return float64(l.Memory) }}, {"pids", func(l runner.Limits) float64 { return float64(l.PIDs) }},
		{"disk", func(l runner.Limits) float64 { return float64(l.Disk) }}, {"cpus", func(l runner.Limits) float64 { return l.CPUs }},
	} {
		sum, bound := 0.0, t.of(most)
		for _, l := range append(s.taken(), asked...) {
			if n := t.of(l); n < 0 {
				sum += bound
			} else {
				sum += n
			}
		}
		if bound >= 0 && sum > bound {
			return fail(http.StatusConflict, "the %s limits of all containers together would be %.12g, and the sandbox has %.12g for them: remove containers, or ask for less", t.name, sum, bound)
		}
	}
	return nil
}

// room returns the disk space that nothing has taken; -1: there is no limit. s.mu is held.
func (s *server) room(most runner.Limits) int64 {
	if most.Disk < 0 {
		return -1
	}
	left := most.Disk
	for _, l := range s.taken() {
		left -= max(0, l.Disk)
	}
	return max(0, left)
}
