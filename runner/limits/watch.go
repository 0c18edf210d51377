package limits

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
)

// watch is the goroutines that look after one sandbox.
type watch struct {
	g    *Group
	quit chan struct{}
	wg   sync.WaitGroup
	once sync.Once // over is called once, whoever finds a reason first
	over func(runner.Reason, string)
}

// Watch looks after what the kernel does not: memory where no cgroup holds it, the
// kills of a cgroup that does not kill all of its processes, and what is written
// to dirs, host directories that the sandbox may write, and to whole, in which also
// what is there already counts. It calls over, once and on a goroutine of its own, when a limit is passed; over ends the sandbox. dirs are
// duplicated; reasons name one by the last element of its name, as the sandbox
// sees it: /out. stop returns when nothing is looked at any more; it may be called
// from over, and twice.
func (g *Group) Watch(pid1 int, dirs, whole []*os.File, over func(runner.Reason, string)) (stop func()) {
	w := &watch{g: g, quit: make(chan struct{}), over: over}
	g.mu.Lock()
	s, k := g.seatOf("memory")
	g.mu.Unlock()
	switch {
	case s != nil && s.place.version == 1:
		w.goes(func() { w.kills(s.outer, k.oom) })
	case s == nil && g.want.Memory != None:
		w.goes(func() { w.memory(pid1) })
	}
	if disks := append(w.disks(dirs, false), w.disks(whole, true)...); len(disks) > 0 {
		w.goes(func() { w.disk(pid1, disks) })
	}
	stop = sync.OnceFunc(func() { close(w.quit); w.wg.Wait() })
	g.mu.Lock()
	g.stop = stop
	g.mu.Unlock()
	return stop
}

func (w *watch) goes(f func()) {
	w.wg.Add(1)
	go func() { defer w.wg.Done(); f() }()
}

// fire reports; it does not wait, so over may call stop.
func (w *watch) fire(r runner.Reason, detail string) {
	select {
	case <-w.quit:
		return
	default:
	}
	w.once.Do(func() {
		if r == runner.OOM {
			w.g.mu.Lock()
			w.g.oom = true
			w.g.mu.Unlock()
		}
		go w.over(r, detail)
	})
}

// sleep says false when it is time to stop. A long sleep ends together with those
// of the other sandboxes, so that a hundred idle ones wake the runner as often as
// one does.
func (w *watch) sleep(d time.Duration) bool {
	t := time.NewTimer(together(time.Now(), d))
	defer t.Stop()
	select {
	case <-w.quit:
		return false
	case <-t.C:
		return true
	}
}

const beat = 200 * time.Millisecond

// together lengthens d to end on a beat that all share.
func together(now time.Time, d time.Duration) time.Duration {
	if d < beat {
		return d
	}
	return d + beat - time.Duration((now.UnixNano()+int64(d))%int64(beat))
}

const killsEvery = 250 * time.Millisecond

// kills polls version 1's count of kills. There the kernel kills one process and
// lets the others run; version 2's memory.oom.group ends them all, and so do we.
func (w *watch) kills(d *cgroup.Dir, file string) {
	for w.sleep(killsEvery) {
		if oomKills(d, file, 4) > 0 {
			w.fire(runner.OOM, "a process was killed at the limit of "+size(w.g.want.Memory))
			return
		}
	}
}

// memory is the watchdog. What the machine has left is cheap to ask and asked for
// all sandboxes together; only when it fell is the sandbox itself looked at, and
// every lookAnew in case somebody else gave back what this one took.
//
// Not when it starts, with PID 1 alone in it: a look leaves the kernel with directories of
// PID 1's threads, and who waits for its end spins until the last of these is gone, 6 ms of
// a run on a busy machine.
func (w *watch) memory(pid1 int) {
	const lookAnew = 2 * time.Second
	p := &w.g.host.pressure
	defer p.forget(w.g)
	limit, total := w.g.want.Memory, meminfo("MemTotal")
	start := p.available(time.Now())
	var used int64
	then, looked := start, time.Now()
	var cost time.Duration
	for w.sleep(pause(used, limit, cost)) {
		now := time.Now()
		left := p.available(now)
		scarce := short(left, total, start)
		if scarce || now.Sub(looked) >= lookAnew || then-left > (limit-used)/4 {
			var alive bool
			if used, alive = hold(pid1, limit); !alive {
				return
			}
			p.note(w.g, used)
			looked, then, cost = now, left, time.Since(now)
		}
		if used > limit {
			w.fire(runner.OOM, size(used)+" used of "+size(limit)+" (watchdog)")
			return
		}
		if scarce && p.largest(w.g, now) {
			w.fire(runner.OOM, "the machine has "+size(left)+" left (watchdog)")
			return
		}
	}
}

// hold says how much memory the sandbox has: roughly and too much when that is far
// from the limit, exactly when it is near.
func hold(pid1 int, limit int64) (used int64, alive bool) {
	pids := processes(pid1)
	used, alive = resident(pids)
	root := rootUsed(pid1)
	if used+root > limit/10*8 {
		if exact, ok := proportional(pids); ok {
			used = exact
		}
	}
	return used + root, alive
}

// growth is how many bytes a second a sandbox is expected to claim at worst.
const growth = 4 << 30

// pause is how long the watchdog may look away: until the limit could be reached,
// between 50 ms and 1 s, and twenty times as long as looking took.
func pause(used, limit int64, cost time.Duration) time.Duration {
	d := time.Duration(float64(max(limit-used, 0)) / growth * float64(time.Second))
	return max(min(max(d, 50*time.Millisecond), time.Second), min(20*cost, time.Second))
}

// short says whether the machine is running out of memory, and was not when the
// sandbox started.
func short(left, total, start int64) bool {
	return total > 0 && left < max(total/50, 64<<20) && left < start/2
}

// pressure chooses which sandbox ends when the machine runs out of memory: the
// largest, and no other for as long as its memory takes to come back.
type pressure struct {
	mu    sync.Mutex
	used  map[*Group]int64
	last  time.Time
	left  int64 // MemAvailable
	asked time.Time
}

// available is MemAvailable, not older than 40 ms: one reading of 30 µs serves all
// sandboxes.
func (p *pressure) available(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.asked) > 40*time.Millisecond {
		p.left, p.asked = meminfo("MemAvailable"), now
	}
	return p.left
}

// Scarce says that the machine has so little memory left that none should be taken for what
// is not asked for.
func (h *Host) Scarce() bool {
	return h.pressure.available(time.Now()) < max(meminfo("MemTotal")/8, 256<<20)
}

const relief = 500 * time.Millisecond

func (p *pressure) note(g *Group, used int64) {
	p.mu.Lock()
	p.used[g] = used
	p.mu.Unlock()
}

func (p *pressure) largest(g *Group, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.used {
		if other > p.used[g] {
			return false
		}
	}
	if now.Sub(p.last) < relief {
		return false
	}
	p.last = now
	return true
}

func (p *pressure) forget(g *Group) {
	p.mu.Lock()
	delete(p.used, g)
	p.mu.Unlock()
}

// dup opens the same directory once more, for the life of a goroutine.
func dup(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, errors.New("no directory")
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
