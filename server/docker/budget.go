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
func (s *server) askLimits(c *container) error {
	most, err := s.most()
	if err != nil {
		return err
	}
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
	l.Disk = sizeWord(h.StorageOpt["size"])
	own := func(asked, part int64) int64 {
		if asked > 0 {
			return asked
		}
		return part
	}
	l.Memory, l.PIDs, l.Disk = own(l.Memory, part(most.Memory, leastMemory)), own(l.PIDs, part(most.PIDs, leastPIDs)), own(l.Disk, part(most.Disk, leastDisk))
	if l.CPUs <= 0 {
		l.CPUs = most.CPUs / share
	}
	if most.CPUs <= 0 && l.CPUs <= 0 {
		l.CPUs = -1
	}
	c.create.Spec.Limits = l
	return nil
}

// reserve checks that all containers together have no more than the parent. s.mu is held.
func (s *server) reserve(c *container) error {
	var all runner.Limits
	for _, o := range append(s.containers[:len(s.containers):len(s.containers)], c) {
		l := o.create.Spec.Limits
		all.Memory, all.PIDs, all.Disk, all.CPUs = all.Memory+l.Memory, all.PIDs+l.PIDs, all.Disk+l.Disk, all.CPUs+l.CPUs
	}
	volumes := map[*volume]int64{} // a container may fill each of its volumes
	for _, v := range s.volumes {
		volumes[v] = v.disk
	}
	for _, v := range c.volumes {
		volumes[v] = max(volumes[v], c.create.Spec.Limits.Disk)
	}
	for _, disk := range volumes {
		all.Disk += disk
	}
	for _, t := range []struct {
		name      string
		sum, most float64
	}{
		{"memory", float64(all.Memory), float64(s.limits.Memory)}, {"pids", float64(all.PIDs), float64(s.limits.PIDs)},
		{"disk", float64(all.Disk), float64(s.limits.Disk)}, {"cpus", all.CPUs, s.limits.CPUs},
	} {
		if t.most > 0 && t.sum > t.most {
			return fail(http.StatusConflict, "the %s limits of all containers together would be %.6g, and the sandbox has %.6g: remove containers, or ask for less", t.name, t.sum, t.most)
		}
	}
	for v, disk := range volumes {
		v.disk = disk
	}
	return nil
}
