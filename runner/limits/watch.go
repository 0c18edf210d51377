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

// watch holds the goroutines that watch one sandbox.
type watch struct {
	g    *Group
	quit chan struct{}
	wg   sync.WaitGroup
	once sync.Once // the first reason calls over; later ones are dropped
	over func(runner.Reason, string)
}

// Watched lists the resources to watch in addition to memory.
type Watched struct {
	Dirs []Written
	PIDs bool // as after [Group.SeveralUsers]
}

// Watch enforces limits that the kernel does not. It watches memory without a cgroup, and kills in a cgroup
// that does not end all its processes. It also watches process counts, writes to directories, and memory
// shortage of the machine.
//
// When a limit is exceeded, Watch calls over once, on its own goroutine; over must end the sandbox. Watch
// duplicates the directories. A reason names a directory by the last element of its name, as the sandbox sees
// it: /out. stop returns when all watching has ended. It may be called from over, and more than once.
func (g *Group) Watch(pid1 int, what Watched, over func(runner.Reason, string)) (stop func()) {
	w := &watch{g: g, quit: make(chan struct{}), over: over}
	g.mu.Lock()
	s, k := g.seatOf("memory")
	g.several = g.several || what.PIDs
	g.mu.Unlock()
	u := &uses{w: w, pid1: pid1, memory: g.watchedMemory(), pids: g.watchedPIDs()}
	if s != nil && s.place.version == 1 {
		w.goes(func() { w.kills(pid1, s.outer, k.oom) })
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

// fire reports a reason. It does not wait for over, so over may call stop.
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

const beat = 200 * time.Millisecond

// together lengthens d so that it ends on a beat shared by all sandboxes: a hundred idle sandboxes wake the runner as
// often as one.
func together(now time.Time, d time.Duration) time.Duration {
	if d < beat {
		return d
	}
	return d + beat - time.Duration((now.UnixNano()+int64(d))%int64(beat))
}

const killsEvery = 250 * time.Millisecond

// kills polls the kill count of version 1. There the kernel kills one process and lets the others run. Version
// 2 ends them all (memory.oom.group), so kills reports the limit to get the same effect.
func (w *watch) kills(pid1 int, d *cgroup.Dir, file string) {
	var stirred <-chan struct{}
	for every := killsEvery; w.rest(every, stirred); {
		if oomKills(d, file, 4) > 0 {
			w.fire(runner.OOM, "a process was killed at the limit of "+size(w.g.memoryLimit()))
			return
		}
		if every, stirred = killsEvery, w.still(pid1); stirred != nil {
			every = restMost
		}
	}
}

// dup duplicates the directory's descriptor, for the lifetime of a goroutine.
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
