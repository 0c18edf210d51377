package limits

import (
	"fmt"
	"time"

	"demesne/runner"
)

// uses watches what the processes of a sandbox take: memory and processes, where no cgroup holds
// them, and memory where the machine runs out of it.
type uses struct {
	w            *watch
	pid1         int
	memory, pids int64 // the limits; None: the kernel's business
	total        int64 // of the machine's memory

	used, tasks int64         // at the last look
	looked      time.Time     //
	left, all   int64         // of the machine, then
	cost        time.Duration // of that look
}

// lookAnew is how old a look at a sandbox may be.
const lookAnew = 2 * time.Second

// watch asks what the machine has left: that is cheap, and asked once for all sandboxes. It looks
// at the sandbox when that fell, and every lookAnew in case other programs gave back what this
// sandbox took.
//
// It does not look at the start, with PID 1 alone: a look leaves directories of PID 1's threads in
// the kernel, and the end of PID 1 waits for the last of these, 6 ms of a run on a busy machine.
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
	for left := start; u.w.sleep(u.pause(left)); {
		now := time.Now()
		left = p.available(now)
		scarce, crowded := short(left, u.total, start), p.running(now) >= mostTasks()/8*7
		if (scarce || crowded && now.Sub(u.looked) >= time.Second || u.due(now, left)) && !u.look(now, left) {
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
			reason, detail = runner.PIDLimit, fmt.Sprintf("the machine has room for %d processes, and %d run (watchdog)", mostTasks(), p.running(now))
		default:
			continue
		}
		u.w.fire(reason, detail)
		return
	}
}

// due says whether the sandbox may have come near a limit since the last look.
func (u *uses) due(now time.Time, left int64) bool {
	if u.memory == None && u.pids == None {
		return false
	}
	if now.Sub(u.looked) >= lookAnew || u.memory != None && u.left-left > (u.memory-u.used)/4 {
		return true
	}
	return u.pids != None && u.w.g.host.pressure.running(now)-u.all > (u.pids-u.tasks)/4
}

// discovery says false when the sandbox is gone.
func (u *uses) look(now time.Time, left int64) (alive bool) {
	p := &u.w.g.host.pressure
	pids, tasks := processes(u.pid1)
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

// verdict says why the sandbox is to end, or "".
func (u *uses) verdict() (runner.Reason, string) {
	switch {
	case u.memory != None && u.used > u.memory:
		return runner.OOM, size(u.used) + " used of " + size(u.memory) + " (watchdog)"
	case u.pids != None && u.tasks > u.pids:
		return runner.PIDLimit, fmt.Sprintf("%d processes and threads of %d (watchdog)", u.tasks-ownThreads, u.pids-ownThreads)
	}
	return "", ""
}

// pause is how long the watchdog may look away: with a limit on memory until that could be reached,
// else until the machine could run short of it.
func (u *uses) pause(left int64) time.Duration {
	switch {
	case u.memory != None && u.pids != None:
		return min(pause(u.used, u.memory, u.cost), beat)
	case u.memory != None:
		return pause(u.used, u.memory, u.cost)
	case u.pids != None:
		return beat
	}
	return max(pause(reserve(u.total), left, u.cost), min(claimed(left-reserve(u.total)), 4*time.Second))
}

// hold says how much memory the sandbox has: roughly and too much when that is far
// from the limit, exactly when it is near.
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

// growth is how many bytes a second a sandbox is expected to claim at worst.
const growth = 4 << 30

// pause is how long it takes from used to the limit, between 50 ms and 1 s, and at least twenty
// times as long as looking took.
func pause(used, limit int64, cost time.Duration) time.Duration {
	return max(min(max(claimed(limit-used), 50*time.Millisecond), time.Second), min(20*cost, time.Second))
}

// claimed is how long it takes to claim so many bytes.
func claimed(room int64) time.Duration {
	return time.Duration(float64(max(room, 0)) / growth * float64(time.Second))
}

// short says whether the machine is running out of memory, and was not when the
// sandbox started.
func short(left, total, start int64) bool {
	return total > 0 && left < reserve(total) && left < start/2
}

// reserve is what sandboxes leave the machine of its memory.
func reserve(total int64) int64 { return max(total/50, 64<<20) }
