// Package limits bounds the resources of a sandbox with the best mechanism available to the runner, and names
// that mechanism in the receipt.
//
//	memory  cgroup2 memory.max | cgroup1 memory.limit_in_bytes | watchdog + RLIMIT_DATA
//	pids    cgroup pids.max | RLIMIT_NPROC, plus a watchdog for several users, or where uid 0 is the kernel's
//	cpus    cgroup2 cpu.max | cgroup1 cpu.cfs_quota_us | sched_setaffinity
//	disk    the size of the tmpfs at / (package rootfs), RLIMIT_FSIZE, polling of directories on a disk
//
// [Open] tries the ways to a control group once per runner, in the order of a table. Each limit then uses the
// group if its controller is available, and its own fallback otherwise. A partial delegation is therefore
// partially used. A [Group] holds the limits of one sandbox:
//
//	New ─▶ Add(PID 1) ─▶ Watch ─▶ Rlimits for each command … ─▶ stop, OOMKilled, Receipt, Close
//
// The limits are set on the group ID; the sandbox's processes are one level below, in ID/inner. A cgroup
// namespace that the sandbox creates has inner as its root. So a nested sandbox that mounts cgroup2 cannot see
// the files that set the limits. This matters because those files belong to the runner's user id, which is also
// the sandbox's.
//
// A kernel limit is exact; a watchdog reacts late. The memory watchdog polls every 50 ms to 1 s. It does not count
// memory in memfds, pipes and System V segments that no process maps. The receipt reports such a limit as "degraded".
//
// When the host itself runs short of memory or processes, the largest sandbox ends, even with control groups.
// This bounds all sandboxes together, independent of their limits.
//
// The disk watchdog needs no privilege, unlike quotas and loop mounts. It counts files. Where files can be
// hidden from that count, it uses the file system's loss of space: see disk.go. No decision of a watchdog waits for a
// measurement that the workload can make slow. Package limits does not create
// file systems and does not end sandboxes; it calls back.
package limits

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits/cgroup"
)

// None is the value of a disabled limit in resolved Limits.
const None = -1

// Minimum and default sizes.
const (
	minMemory = 4 << 20
	minPIDs   = 4
	minCPUs   = 0.01 // the kernel refuses a quota below 1 ms a period
	minDisk   = 1 << 20
)

// ownThreads is added to the kernel's process limits for the threads of PID 1. The workload gets the full
// number the caller asked for.
const ownThreads = 16

// Default returns the limits that replace a zero: half of the machine's memory, 512 processes and 2 GiB of
// disk. The memory limit does not exceed the runner's own. Processors have no default limit.
func Default() runner.Limits {
	return runner.Limits{Memory: halfMemory(), PIDs: runner.DefaultPIDs, Disk: runner.DefaultDisk}
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

// ownMemoryLimit returns the memory limit of the runner's own group, or 0 if it cannot be read.
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

// Resolve replaces every zero by its default and every negative value by [None].
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

// check rejects resolved limits that are too small for any process.
func check(l runner.Limits) error {
	switch {
	case l.Memory != None && l.Memory < minMemory:
		return ipc.Errorf(ipc.CodeInvalid, "set memory limit: %d bytes is below the 4 MiB a process needs", l.Memory)
	case l.PIDs != None && l.PIDs < minPIDs:
		return ipc.Errorf(ipc.CodeInvalid, "set pids limit: %d is below the %d a shell needs", l.PIDs, minPIDs)
	case l.Disk != None && l.Disk < minDisk:
		return ipc.Errorf(ipc.CodeInvalid, "set disk limit: %d bytes is below the 1 MiB a run needs", l.Disk)
	case l.Files < 0 || l.Files > 0 && l.Files < leastFiles:
		return ipc.Errorf(ipc.CodeInvalid, "set files limit: %d is below the %d that PID 1 needs", l.Files, leastFiles)
	case math.IsNaN(l.CPUs), math.IsInf(l.CPUs, 0):
		return ipc.Errorf(ipc.CodeInvalid, "set cpus limit: %v is not a number of processors", l.CPUs)
	case l.CPUs != None && l.CPUs < minCPUs:
		return ipc.Errorf(ipc.CodeInvalid, "set cpus limit: %v is below the 0.01 the kernel can count", l.CPUs)
	}
	return nil
}

// size formats bytes for a human reader.
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

// shares lists resources that the kernel counts per user on the whole machine. all is the machine's limit for a
// user. ours is the limit of the user namespace in which it is read (Linux 4.13).
var shares = []struct{ all, ours string }{
	{"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"},
	{"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"},
}

// Share reserves a quarter of these limits for the caller's own programs. To the kernel, uid 0 of a sandbox is
// the caller's user. Share is for a runner in its own user namespace and applies to all sandboxes in it. Where
// the kernel refuses the write, Share reserves nothing.
func Share() {
	for _, s := range shares {
		text, err := os.ReadFile(s.all)
		n, bad := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err == nil && bad == nil {
			_ = os.WriteFile(s.ours, strconv.AppendInt(nil, int64(n)/4*3, 10), 0)
		}
	}
}
