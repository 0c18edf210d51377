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

// Watched is what is looked after beside memory.
type Watched struct {
	Dirs []Written
	PIDs bool // RLIMIT_NPROC does not bound all of the sandbox's processes: they are counted
}

// Watch looks after what the kernel does not: memory where no cgroup holds it, the
// kills of a cgroup that does not kill all of its processes, processes, what is
// written to directories, and memory that the machine runs out of. It calls over, once and on a
// goroutine of its own, when a limit is passed; over ends the sandbox. Directories are
// duplicated; reasons name one by the last element of its name, as the sandbox
// sees it: /out. stop returns when nothing is looked at any more; it may be called
// from over, and twice.
func (g *Group) Watch(pid1 int, what Watched, over func(runner.Reason, string)) (stop func()) {
	w := &watch{g: g, quit: make(chan struct{}), over: over}
	g.mu.Lock()
	s, k := g.seatOf("memory")
	pids := what.PIDs && g.want.PIDs != None && !g.held("pids")
	g.mu.Unlock()
	u := &uses{w: w, pid1: pid1, memory: None, pids: None}
	if s == nil {
		u.memory = g.want.Memory
	} else if s.place.version == 1 {
		w.goes(func() { w.kills(s.outer, k.oom) })
	}
	if pids {
		u.pids = g.want.PIDs + ownThreads
	}
	w.goes(u.watch)
	if disks := w.disks(what.Dirs); len(disks) > 0 {
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
