package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

const (
	// filesInGroup is the descriptor limit of a process where a cgroup accounts for descriptor memory;
	// filesAlone applies where nothing accounts for it.
	filesInGroup = 65536
	filesAlone   = 4096

	// leastFiles is the minimum PID 1 needs.
	leastFiles = 64

	// leastData is the minimum PID 1 needs, because it has the same limits as the commands. A Go program counts
	// some 78 MiB, of which it touches 5. For memory limits below leastData only the watchdog applies.
	leastData = 128 << 20
)

// Rlimits returns the resource limits for every command of the sandbox. No value exceeds the runner's own hard
// limit, which only real root could raise.
func (g *Group) Rlimits() []pid1api.Rlimit {
	g.mu.Lock()
	defer g.mu.Unlock()
	memory := g.held("memory")
	var out []pid1api.Rlimit
	add := func(resource int, value uint64) {
		out = append(out, pid1api.Rlimit{Resource: resource, Value: min(value, hard(resource))})
	}
	files := uint64(filesAlone)
	if memory {
		files = filesInGroup
	}
	if g.want.Files > 0 {
		files = uint64(g.want.Files)
	}
	add(unix.RLIMIT_NOFILE, min(files, filesBelow(hard(unix.RLIMIT_NOFILE))))
	if g.want.PIDs != None && (countsPerNamespace() || !g.held("pids")) {
		add(unix.RLIMIT_NPROC, uint64(least(g.first.PIDs, g.want.PIDs)+ownThreads))
	}
	// RLIMIT_DATA counts writable memory; RLIMIT_AS counts address space. Node, Go and wasm reserve far more
	// address space than they use.
	if g.want.Memory != None && !memory {
		add(unix.RLIMIT_DATA, max(uint64(least(g.first.Memory, g.want.Memory)), leastData))
	}
	if g.want.Disk != None {
		add(unix.RLIMIT_FSIZE, uint64(g.want.Disk))
	}
	return out
}

// hard returns the runner's own hard limit.
func hard(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Max
}

// filesBelow returns the descriptor limit of a sandbox's process for the runner's own limit hard. The kernel
// counts descriptors in transit through sockets per user, and sandboxes share the runner's user. A process
// whose limit is below that count cannot send any (unix(7), ETOOMANYREFS). The runner's limit must therefore
// exceed the sandboxes' limit.
func filesBelow(hard uint64) uint64 { return max(hard/4*3, min(hard, leastFiles)) }

// countsPerNamespace reports whether RLIMIT_NPROC counts a user's processes per user namespace (Linux 5.14).
// Older kernels count all processes of the user on the machine.
func countsPerNamespace() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), 5, 14)
}

// exemptsRoot reports whether a sandbox may run as the kernel's uid 0, for which fork(2) ignores RLIMIT_NPROC in every
// user namespace. That id may have any number in this namespace, or none. The kernel's uid 0 owns /proc/sys/kernel, so
// stat(2) shows its number here, and the overflow id (user_namespaces(7)) if it has none.
func exemptsRoot() bool {
	var st unix.Stat_t
	if unix.Stat("/proc/sys/kernel", &st) != nil {
		return true
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || rootIsMapped(st.Uid, string(ids))
}

// overflow is the default of /proc/sys/kernel/overflowuid.
const overflow = 65534

// rootIsMapped reports whether root, the number that stat(2) shows for the kernel's uid 0, is an id of the map. The
// overflow id is usually another user's; it is the kernel's uid 0 only if the map gives it an outer 0.
func rootIsMapped(root uint32, ids string) bool {
	for line := range strings.Lines(ids) {
		var inside, outside, size int64
		if n, _ := fmt.Sscan(line, &inside, &outside, &size); n != 3 {
			return true
		}
		if i := int64(root) - inside; i >= 0 && i < size && (root != overflow || outside+i == 0) {
			return true
		}
	}
	return false
}

func atLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// bind restricts the process and everything it forks to ⌈cpus⌉ of its current processors. It returns their
// number.
func bind(pid int, cpus float64) (int, error) {
	var have unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &have); err != nil {
		return 0, os.NewSyscallError("sched_getaffinity", err)
	}
	want := choose(&have, ceil(cpus), pid)
	return want.Count(), bindAll(&want, func() []int { return []int{pid} })
}

// bindAll restricts every thread of pids to want. A bound thread passes its mask on to the threads it starts. The next
// round finds threads that an unbound thread started meanwhile.
func bindAll(want *unix.CPUSet, pids func() []int) error {
	for bound, more := map[int]bool{}, true; more; {
		more = false
		for _, pid := range pids() {
			tids, err := threads(pid)
			if err != nil {
				return err
			}
			for _, tid := range tids {
				if bound[tid] {
					continue
				}
				if err := unix.SchedSetaffinity(tid, want); err != nil && err != unix.ESRCH {
					return os.NewSyscallError("sched_setaffinity", err)
				}
				bound[tid], more = true, true
			}
		}
	}
	return nil
}

func ceil(cpus float64) int { return int(math.Ceil(cpus)) }

// threads lists the current threads of a process: none if it has exited.
func threads(pid int) (tids []int, err error) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = nil
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, err
}

// choose picks n of the processors in have. It starts at a different one for each process; otherwise all
// sandboxes would share the first.
func choose(have *unix.CPUSet, n, start int) unix.CPUSet {
	var all []int
	for i := range len(have) * 64 {
		if have.IsSet(i) {
			all = append(all, i)
		}
	}
	var out unix.CPUSet
	for i := range min(n, len(all)) {
		out.Set(all[(start+i)%len(all)])
	}
	return out
}
