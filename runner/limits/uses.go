package limits

import (
	"fmt"
	"math"
	"time"

	"demesne/runner"
)

// uses watches the resources that the processes of a sandbox take. It watches memory and processes where no
// cgroup limits them, and the memory of the whole machine when that runs short.
type uses struct {
	w            *watch
	pid1         int
	memory, pids int64 // None where the kernel enforces the limit
	total        int64 // the machine's memory

	used, tasks int64         // at the last look
	looked      time.Time     // time of the last look
	left, all   int64         // the machine's available memory and its threads at that time
	cost        time.Duration // duration of that look
}

// lookAnew is the longest time between two looks at a sandbox.
const lookAnew = 2 * time.Second

// watch polls the machine's available memory, which is cheap and shared by all sandboxes. It examines the
// sandbox when that value falls. It also does so every lookAnew, in case memory freed by other programs hides
// the sandbox's growth.
//
// It does not examine the sandbox at the start, when PID 1 is alone. A look leaves dentries for the threads of
// PID 1 in the kernel. The exit of PID 1 waits until these are gone: 6 ms of a run on a busy machine.
func (u *uses) watch() {
	p := &u.w.g.host.pressure
	p.join(u.w.g, u.pid1)
	defer p.forget(u.w.g)
	u.total = totalMemory()
	start := p.available(time.Now())
	u.left, u.looked = start, time.Now()
	if u.pids != None {
		u.all = p.running(u.looked)
	}
	var still <-chan struct{}
	for left := start; u.w.rest(u.pause(left, still != nil), still); {
		now := time.Now()
		left, u.memory, u.pids = p.available(now), u.w.g.watchedMemory(), u.w.g.watchedPIDs()
		if still = nil; u.memory != None || u.pids != None {
			still = u.w.still(u.pid1)
		}
		scarce, crowded := short(left, u.total, start), p.running(now) >= mostTasks()/8*7
		if (scarce || crowded && now.Sub(u.looked) >= time.Second || still == nil && u.due(now, left)) && !u.look(now, left) {
			return
		}
		if scarce || crowded {
			p.survey(now)
		}
		reason, detail := u.verdict()
		switch {
		case reason != "":
		case scarce && p.largest(u.w.g, memoryOf, now):
			reason, detail = runner.OOM, "the machine has "+size(left)+" left (watchdog)"
		case crowded && p.crowded(mostTasks(), now) && p.largest(u.w.g, tasksOf, now):
			reason, detail = runner.PIDLimit, fmt.Sprintf("the machine allows %d processes, and %d run (watchdog)", mostTasks(), p.running(now))
		default:
			continue
		}
		u.w.fire(reason, detail)
		return
	}
}

// due reports whether the sandbox may have come near a limit since the last look.
func (u *uses) due(now time.Time, left int64) bool {
	if u.memory == None && u.pids == None {
		return false
	}
	if now.Sub(u.looked) >= lookAnew || u.memory != None && u.left-left > (u.memory-u.used)/4 {
		return true
	}
	return u.pids != None && u.w.g.host.pressure.running(now)-u.all > (u.pids-u.tasks)/4
}

// look measures the sandbox. It returns false when the sandbox is gone. More processes than the limit decide at once:
// their memory, which they can make slow to read, does not matter any more.
func (u *uses) look(now time.Time, left int64) (alive bool) {
	p := &u.w.g.host.pressure
	most := math.MaxInt
	if u.pids != None {
		most = int(u.pids)
	}
	pids, tasks := processesUpTo(u.pid1, most)
	if tasks > most {
		u.tasks = int64(tasks)
		return true
	}
	if u.used, alive = hold(u.pid1, pids, u.memory); !alive {
		return false
	}
	p.note(u.w.g, u.used, int64(tasks), now)
	if u.tasks = int64(tasks); u.pids != None {
		u.all = p.running(now)
	}
	u.looked, u.left, u.cost = now, left, time.Since(now)
	return true
}

// verdict returns the reason to end the sandbox and its detail, or "".
func (u *uses) verdict() (runner.Reason, string) {
	switch {
	case u.memory != None && u.used > u.memory:
		return runner.OOM, size(u.used) + " used of " + size(u.memory) + " (watchdog)"
	case u.pids != None && u.tasks > u.pids:
		return runner.PIDLimit, fmt.Sprintf("%d processes and threads of %d (watchdog)", u.tasks-ownThreads, u.pids-ownThreads)
	}
	return "", ""
}

// pause returns the time until the next poll. With a memory limit, that is the time until the sandbox could
// reach it; otherwise, and while the sandbox is still, the time until the machine could run short of memory.
func (u *uses) pause(left int64, still bool) time.Duration {
	switch {
	case still:
	case u.memory != None && u.pids != None:
		return min(pause(u.used, u.memory, u.cost), beat)
	case u.memory != None:
		return pause(u.used, u.memory, u.cost)
	case u.pids != None:
		return beat
	}
	return max(pause(reserve(u.total), left, u.cost), min(claimed(left-reserve(u.total)), 4*time.Second))
}

// hold returns the memory that the sandbox uses. The result is an upper estimate far from the limit and exact
// near it.
func hold(pid1 int, pids []int, limit int64) (used int64, alive bool) {
	used, alive = resident(pids)
	root := rootUsed(pid1)
	if limit == None || used+root > limit/10*8 {
		if exact, ok := proportional(pids); ok {
			used = exact
		}
	}
	return used + root, alive
}

// growth is the assumed worst case of memory growth of a sandbox, in bytes per second.
const growth = 4 << 30

// pause returns the time it takes to grow from used to the limit, between 50 ms and 1 s. It is at least twenty
// times the cost of a measurement, but at most 1 s.
func pause(used, limit int64, cost time.Duration) time.Duration {
	return max(min(max(claimed(limit-used), 50*time.Millisecond), time.Second), min(20*cost, time.Second))
}

// claimed returns the time it takes to claim room bytes.
func claimed(room int64) time.Duration {
	return time.Duration(float64(max(room, 0)) / growth * float64(time.Second))
}

// short reports whether the machine is running out of memory but was not when the sandbox started.
func short(left, total, start int64) bool {
	return total > 0 && left < reserve(total) && left < start/2
}

// reserve returns the memory that sandboxes must leave to the machine.
func reserve(total int64) int64 { return max(total/50, 64<<20) }
