package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
)

// setting describes how to set and read back one controller of one cgroup version.
type setting struct {
	limit      string // memory, pids, cpus
	controller string
	version    int
	mechanism  string // name in the receipt
	settings   func(l runner.Limits) []write
	read       func(d *cgroup.Dir) (string, error) // the effective value
	oom        string                              // the file that has oom_kill
}

// write is one write to a cgroup file. An optional write is skipped where the kernel does not have the file (no
// swap accounting, or Linux before 4.19).
type write struct {
	file, value string
	optional    bool
}

const cpuPeriod = 100_000 // microseconds, the kernel's default

var knobs = []setting{
	{
		limit: "memory", controller: "memory", version: 2, mechanism: "cgroup2 memory.max", oom: "memory.events",
		settings: func(l runner.Limits) []write {
			return []write{
				{"memory.max", strconv.FormatInt(l.Memory, 10), false},
				{"memory.swap.max", "0", true},
				{"memory.oom.group", "1", true},
			}
		},
		read: plain("memory.max", 0),
	},
	{
		limit: "memory", controller: "memory", version: 1, mechanism: "cgroup1 memory.limit_in_bytes", oom: "memory.oom_control",
		settings: func(l runner.Limits) []write {
			v := strconv.FormatInt(l.Memory, 10)
			return []write{
				{"memory.limit_in_bytes", v, false},
				{"memory.memsw.limit_in_bytes", v, true},
			}
		},
		read: plain("memory.limit_in_bytes", 0),
	},
	{limit: "pids", controller: "pids", version: 2, mechanism: "cgroup2 pids.max", settings: pidsMax, read: plain("pids.max", ownThreads)},
	{limit: "pids", controller: "pids", version: 1, mechanism: "cgroup1 pids.max", settings: pidsMax, read: plain("pids.max", ownThreads)},
	{
		limit: "cpus", controller: "cpu", version: 2, mechanism: "cgroup2 cpu.max",
		settings: func(l runner.Limits) []write {
			return []write{{"cpu.max", fmt.Sprintf("%d %d", quota(l.CPUs), cpuPeriod), false}}
		},
		read: func(d *cgroup.Dir) (string, error) {
			text, err := d.Read("cpu.max")
			if err != nil {
				return "", err
			}
			return processors(text)
		},
	},
	{
		limit: "cpus", controller: "cpu", version: 1, mechanism: "cgroup1 cpu.cfs_quota_us",
		settings: func(l runner.Limits) []write {
			return []write{
				{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
				{"cpu.cfs_quota_us", strconv.FormatInt(quota(l.CPUs), 10), false},
			}
		},
		read: func(d *cgroup.Dir) (string, error) {
			q, err := d.Read("cpu.cfs_quota_us")
			if err != nil {
				return "", err
			}
			p, err := d.Read("cpu.cfs_period_us")
			if err != nil {
				return "", err
			}
			return processors(q + " " + p)
		},
	},
}

func pidsMax(l runner.Limits) []write {
	return []write{{"pids.max", strconv.FormatInt(l.PIDs+ownThreads, 10), false}}
}

func quota(cpus float64) int64 { return int64(math.Round(cpus * cpuPeriod)) }

// plain returns a reader of a number that subtracts added, the amount added to the caller's value.
func plain(file string, added int64) func(*cgroup.Dir) (string, error) {
	return func(d *cgroup.Dir) (string, error) {
		text, err := d.Read(file)
		if err != nil {
			return "", err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return "", fmt.Errorf("read %s: %q is not a number", file, text)
		}
		return strconv.FormatInt(n-added, 10), nil
	}
}

// processors converts "quota period" to a number of processors.
func processors(text string) (string, error) {
	var q, p float64
	if _, err := fmt.Sscan(strings.TrimSpace(text), &q, &p); err != nil || p <= 0 || q <= 0 {
		return "", fmt.Errorf("read processor quota: %q is not a quota", text)
	}
	return strconv.FormatFloat(q/p, 'f', -1, 64), nil
}

// wanted reports whether the resolved limits enable the limit.
func wanted(l runner.Limits, limit string) bool {
	switch limit {
	case "memory":
		return l.Memory != None
	case "pids":
		return l.PIDs != None
	case "cpus":
		return l.CPUs != None
	}
	return false
}

// knobsFor returns the settings that p supports for l.
func knobsFor(p *hierarchy, l runner.Limits) []setting {
	var out []setting
	for _, k := range knobs {
		for _, c := range p.controllers {
			if k.version == p.version && k.controller == c && wanted(l, k.limit) {
				out = append(out, k)
			}
		}
	}
	return out
}
