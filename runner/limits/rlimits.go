package limits

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

const (
	// filesInGroup is how many descriptors a process gets where their memory counts
	// against a cgroup, filesAlone where nothing counts it.
	filesInGroup = 65536
	filesAlone   = 4096

	// leastFiles is what PID 1 needs.
	leastFiles = 64

	// leastData is what PID 1 needs: it has the same limits as the commands, and of a Go
	// program some 78 MiB count, of which it touches 5. Below it the watchdog is alone.
	leastData = 128 << 20
)

// Rlimits returns what every command of the sandbox is to be started with. None is
// above the runner's own hard limit, which only real root could raise.
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
	add(unix.RLIMIT_NOFILE, min(files, filesBelow(hard(unix.RLIMIT_NOFILE))))
	if g.want.PIDs != None && (countsPerNamespace() || !g.held("pids")) {
		add(unix.RLIMIT_NPROC, uint64(g.want.PIDs+ownThreads))
	}
	// RLIMIT_DATA counts what may be written, RLIMIT_AS what may be addressed:
	// node, go and wasm reserve far more of the latter than they use.
	if g.want.Memory != None && !memory {
		add(unix.RLIMIT_DATA, max(uint64(g.want.Memory), leastData))
	}
	if g.want.Disk != None {
		add(unix.RLIMIT_FSIZE, uint64(g.want.Disk))
	}
	return out
}

// hard is the runner's own hard limit.
func hard(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Max
}

// filesBelow is how many descriptors a process of a sandbox may have at the most where the runner may have hard.
// Descriptors on their way through sockets are counted for a user, whose sandboxes' are among them, and whoever has
// a limit below that count can send none (unix(7), ETOOMANYREFS): ours has to stay above what theirs lets them reach.
func filesBelow(hard uint64) uint64 { return max(hard/4*3, min(hard, leastFiles)) }

// countsPerNamespace says whether RLIMIT_NPROC counts a user's processes in each
// user namespace apart (Linux 5.14); before, all of the user's on the machine.
func countsPerNamespace() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), 5, 14)
}

func atLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// bind lets the process, and all it forks, run on ⌈cpus⌉ of the processors it may
// use now. It returns how many that are.
func bind(pid int, cpus float64) (int, error) {
	var have unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &have); err != nil {
		return 0, os.NewSyscallError("sched_getaffinity", err)
	}
	want := choose(&have, int(math.Ceil(cpus)), pid)
	// Of each thread: those that bound ones start are bound. What one of the others started meanwhile, the
	// next look finds.
	for bound, more := map[int]bool{}, true; more; {
		more = false
		for _, tid := range threads(pid) {
			if bound[tid] {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &want); err != nil && err != unix.ESRCH {
				return 0, os.NewSyscallError("sched_setaffinity", err)
			}
			bound[tid], more = true, true
		}
	}
	return want.Count(), nil
}

// threads are those of a process now.
func threads(pid int) (tids []int) {
	entries, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// choose takes n of the processors in have. It starts at a different one for each
// process, or all sandboxes would share the first.
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
