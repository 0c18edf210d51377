package limits

import (
	"bytes"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pressure bounds the total use of all sandboxes of a runner by the capacity of the machine, independent of
// their limits. When the machine runs out of memory or processes, it chooses the largest sandbox to end. It
// then chooses no other until the freed resources have returned.
type pressure struct {
	mu    sync.Mutex
	used  map[*Group]share
	last  time.Time
	left  int64 // MemAvailable
	asked time.Time

	tasks   int64 // threads of the whole machine
	counted time.Time
}

// share is the usage of one sandbox at its last look.
type share struct {
	memory, tasks int64
	pid1          int
	at            time.Time
}

func memoryOf(s share) int64 { return s.memory }
func tasksOf(s share) int64  { return s.tasks }

// available returns MemAvailable, at most 40 ms old. One read, which takes 30 µs, serves all sandboxes.
func (p *pressure) available(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.asked) > 40*time.Millisecond {
		p.left, p.asked = meminfo("MemAvailable"), now
	}
	return p.left
}

// running returns the number of threads on the machine, at most 40 ms old.
func (p *pressure) running(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.counted) > 40*time.Millisecond {
		p.tasks, p.counted = machineTasks(), now
	}
	return p.tasks
}

// machineTasks reads the total in the fourth field of /proc/loadavg (2/345), which covers all namespaces.
func machineTasks() int64 {
	var buf [128]byte
	text, err := slurp("/proc/loadavg", buf[:])
	if err != nil {
		var s unix.Sysinfo_t
		unix.Sysinfo(&s) // fails only for a wrong pointer
		return int64(s.Procs)
	}
	_, all, _ := bytes.Cut(text, []byte("/"))
	return field(all, 0)
}

// Scarce reports whether the machine has so little memory left that speculative work should not use any.
func (h *Host) Scarce() bool {
	return h.pressure.available(time.Now()) < max(totalMemory()/8, 256<<20)
}

const relief = 500 * time.Millisecond

// join makes a sandbox a candidate for ending.
func (p *pressure) join(g *Group, pid1 int) {
	p.mu.Lock()
	p.used[g] = share{pid1: pid1}
	p.mu.Unlock()
}

// note records a look at a sandbox, unless the sandbox has been forgotten.
func (p *pressure) note(g *Group, memory, tasks int64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.used[g]; ok {
		s.memory, s.tasks, s.at = memory, tasks, at
		p.used[g] = s
	}
}

// survey updates the sandboxes whose last look is older than lookAnew, before one is chosen. Sandboxes with
// control groups are rarely examined otherwise.
func (p *pressure) survey(now time.Time) {
	p.mu.Lock()
	stale := map[*Group]int{}
	for g, s := range p.used {
		if now.Sub(s.at) > lookAnew {
			stale[g] = s.pid1
		}
	}
	p.mu.Unlock()
	for g, pid1 := range stale {
		pids, tasks := processes(pid1)
		if memory, alive := hold(pid1, pids, None); alive {
			p.note(g, memory, int64(tasks), now)
		}
	}
}

// largest reports whether g uses the most and must end.
func (p *pressure) largest(g *Group, of func(share) int64, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.used {
		if of(other) > of(p.used[g]) {
			return false
		}
	}
	if now.Sub(p.last) < relief {
		return false
	}
	p.last = now
	return true
}

// crowded reports whether the machine is running out of its most threads and sandboxes have at least half of
// them.
func (p *pressure) crowded(most int64, now time.Time) bool {
	if p.running(now) < most/8*7 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := int64(0)
	for _, s := range p.used {
		sum += s.tasks
	}
	return sum >= most/2
}

// mostTasks returns the maximum number of threads, bounded by the machine and by the runner's user.
var mostTasks = sync.OnceValue(func() int64 {
	most := int64(math.MaxInt64)
	if n := hard(unix.RLIMIT_NPROC); n < uint64(most) {
		most = int64(n)
	}
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		var buf [32]byte
		if text, err := slurp(file, buf[:]); err == nil {
			most = min(most, max(field(text, 0), 1))
		}
	}
	return most
})

func (p *pressure) forget(g *Group) {
	p.mu.Lock()
	delete(p.used, g)
	p.mu.Unlock()
}
