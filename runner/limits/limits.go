// Package limits bounds what a sandbox may use, by the best mechanism this machine
// gives a runner, and says in the receipt which one that was.
//
//	memory  cgroup2 memory.max | cgroup1 memory.limit_in_bytes | watchdog + RLIMIT_DATA
//	pids    cgroup pids.max | RLIMIT_NPROC, and a watchdog where ids of the sandbox have that each
//	cpus    cgroup2 cpu.max | cgroup1 cpu.cfs_quota_us | sched_setaffinity
//	disk    the size of the tmpfs at / (package rootfs), RLIMIT_FSIZE, polling what is on a disk
//
// [Open] tries the ways to a control group once per runner, in the order of a
// table; each limit then takes the group if its controller is there and its own
// second choice if not, so that half a delegation is half used. A [Group] is one
// sandbox's:
//
//	New ─▶ Add(PID 1) ─▶ Watch ─▶ Rlimits for each command … ─▶ stop, OOMKilled, Receipt, Close
//
// A sandbox's processes are two levels down, in ID/box, while the limits stand at
// ID. A cgroup namespace made by the sandbox has box as its root, so not even with
// nesting, where it may mount cgroup2, can it see a file that lifts a limit; the
// files belong to the runner's user id, which is the sandbox's too.
//
// What a kernel limit does exactly, a watchdog does late: it looks every 50 ms to
// 1 s, and memory in memfds, pipes and System V segments that nothing maps is not
// in its sum. The receipt says "degraded" for it. Where the host itself runs short of memory or
// processes, the largest sandbox ends, also with control groups: so all together are bounded,
// whatever limits each has.
//
// The disk watchdog needs no rights, which quotas and loop mounts do. It counts files, and where files can be
// hidden from that, what the file system lost: see disk.go. Package limits does not make file systems, and does not
// end a sandbox itself: it calls back.
package limits

import (
	"math"
	"strconv"
	"strings"
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits/cgroup"
)

// None is a limit that was switched off, in a resolved Limits.
const None = -1

// The least a sandbox can live with, and the default sizes.
const (
	minMemory = 4 << 20
	minPIDs   = 4
	minCPUs   = 0.01 // a quota below 1 ms a period is refused by the kernel
	minDisk   = 1 << 20

	defaultPIDs = 512
	defaultDisk = 2 << 30
)

// ownThreads is added to the kernel's process limits for the threads of PID 1, so
// that the caller's number is what the workload gets.
const ownThreads = 16

// Default returns the limits that a zero stands for: half of the machine's memory,
// but not more than the runner itself may use; 512 processes; 2 GiB of disk. There
// is no default for processors.
func Default() runner.Limits {
	return runner.Limits{Memory: halfMemory(), PIDs: defaultPIDs, Disk: defaultDisk}
}

var halfMemory = sync.OnceValue(func() int64 {
	return defaultMemory(totalMemory(), ownMemoryLimit())
})

var totalMemory = sync.OnceValue(func() int64 { return meminfo("MemTotal") })

func defaultMemory(total, own int64) int64 {
	m := total / 2
	if own > 0 {
		m = min(m, own)
	}
	return max(m, minMemory)
}

// ownMemoryLimit is what the runner's own group allows, 0 if that cannot be told.
func ownMemoryLimit() int64 {
	self, err := cgroup.Self()
	if err != nil {
		return 0
	}
	for controller, file := range map[string]string{"memory": "memory.limit_in_bytes", "": "memory.max"} {
		m, ok := cgroup.Find(self, controller)
		if !ok {
			continue
		}
		d, err := cgroup.Own(m)
		if err != nil {
			continue
		}
		text, _ := d.Read(file)
		d.Close()
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// Resolve replaces every zero by its default and every negative by [None].
func Resolve(l runner.Limits) runner.Limits { return resolve(l, Default()) }

func resolve(l, d runner.Limits) runner.Limits {
	pick := func(v, def int64) int64 {
		switch {
		case v < 0:
			return None
		case v == 0:
			return def
		}
		return v
	}
	l.Memory, l.PIDs, l.Disk = pick(l.Memory, d.Memory), pick(l.PIDs, d.PIDs), pick(l.Disk, d.Disk)
	if l.CPUs <= 0 {
		l.CPUs = None
	}
	return l
}

// check refuses resolved limits that nothing could live with.
func check(l runner.Limits) error {
	switch {
	case l.Memory != None && l.Memory < minMemory:
		return ipc.Errorf(ipc.CodeInvalid, "set memory limit: %d bytes is below the 4 MiB a process needs", l.Memory)
	case l.PIDs != None && l.PIDs < minPIDs:
		return ipc.Errorf(ipc.CodeInvalid, "set pids limit: %d is below the %d a shell needs", l.PIDs, minPIDs)
	case l.Disk != None && l.Disk < minDisk:
		return ipc.Errorf(ipc.CodeInvalid, "set disk limit: %d bytes is below the 1 MiB a run needs", l.Disk)
	case math.IsNaN(l.CPUs), math.IsInf(l.CPUs, 0):
		return ipc.Errorf(ipc.CodeInvalid, "set cpus limit: %v is no number of processors", l.CPUs)
	case l.CPUs != None && l.CPUs < minCPUs:
		return ipc.Errorf(ipc.CodeInvalid, "set cpus limit: %v is below the 0.01 the kernel can count", l.CPUs)
	}
	return nil
}

// size writes bytes for a person.
func size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + units[i]
}
