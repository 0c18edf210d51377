package docker

import (
	"cmp"
	"net/http"

	"demesne/runner"
)

// share is the part of the parent's limits that a container gets if its client names none.
const share = 8

// The least limits of a container by default.
const leastMemory, leastPIDs, leastDisk = 64 << 20, 32, 64 << 20

// part returns the part of a limit that a container gets by default: -1, none, if the parent has no limit.
func part(all, least int64) int64 {
	if all <= 0 {
		return -1
	}
	return min(all, max(all/share, least))
}

// askLimits sets the limits of a container: what its client asks for, or a share of the parent's.
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
	if l = l.Over(partOf(most)); l.CPUs == 0 {
		l.CPUs = -1 // none, as the parent
	}
	c.create.Spec.Limits = l
	return nil
}

// partOf returns the limits that a container gets by default.
func partOf(most runner.Limits) runner.Limits {
	return runner.Limits{Memory: part(most.Memory, leastMemory), PIDs: part(most.PIDs, leastPIDs), Disk: part(most.Disk, leastDisk), CPUs: max(0, most.CPUs/share)}
}

// reserve checks that all containers together, with a new one, have no more than the parent. s.mu is held.
func (s *server) reserve(c *container, most runner.Limits) error {
	disks := map[*volume]int64{} // a container may fill each of its volumes
	for _, v := range c.volumes {
		disks[v] = max(v.disk, c.create.Spec.Limits.Disk)
	}
	if err := s.fits(most, c.create.Spec.Limits, disks); err != nil {
		return err
	}
	for v, disk := range disks {
		v.disk = disk
	}
	return nil
}

// fits checks that something new fits into the parent's limits beside all containers, volumes and the build that runs. disks
// has what volumes may then have. s.mu is held.
func (s *server) fits(most, asked runner.Limits, disks map[*volume]int64) error {
	all := []runner.Limits{asked, s.step}
	for _, c := range s.containers {
		all = append(all, c.create.Spec.Limits)
	}
	for _, v := range s.volumes {
		all = append(all, runner.Limits{Disk: max(v.disk, disks[v])})
	}
	for _, t := range []struct {
		name string
		of   func(runner.Limits) float64
	}{
		{"memory", func(l runner.Limits) float64 { return float64(l.Memory) }}, {"pids", func(l runner.Limits) float64 { return float64(l.PIDs) }},
		{"disk", func(l runner.Limits) float64 { return float64(l.Disk) }}, {"cpus", func(l runner.Limits) float64 { return l.CPUs }},
	} {
		sum, bound := 0.0, t.of(most)
		for _, l := range all {
			sum += t.of(l)
		}
		if bound > 0 && sum > bound {
			return fail(http.StatusConflict, "the %s limits of all containers together would be %.0f, and the sandbox has %.0f: remove containers, or ask for less", t.name, sum, bound)
		}
	}
	return nil
}
