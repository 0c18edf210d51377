package engine

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
)

// linger keeps a runner for a while after its last sandbox and caller, with its pool of prepared sandboxes. A loop
// of one-shot runs then starts one runner and not many. The caller that came last sets the time. A runner that made
// no sandbox does not linger, and neither does one whose program was replaced: the next caller starts the new
// program.
//
// Its methods are called with [Engine]'s lock held.
type linger struct {
	length  time.Duration
	retired bool        // by demesne gc --runner
	timer   *time.Timer // nil: the runner does not linger now
}

// begin starts lingering, after which stop is called with the timer that ran out. It returns false if the runner is
// to end now. served says that the runner made a sandbox.
func (l *linger) begin(served bool, stop func(*time.Timer)) bool {
	if l.length <= 0 || !served || l.retired || replaced() {
		return false
	}
	if l.timer == nil {
		var t *time.Timer
		started := make(chan struct{})
		t = time.AfterFunc(l.length, func() { <-started; stop(t) })
		close(started)
		l.timer = t
	}
	return true
}

// stop ends lingering: there is a caller again.
func (l *linger) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// setLinger takes how long to linger after a caller, up to [runner.MaxLinger].
func (e *Engine) setLinger(intro api.Introduction) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.linger.length = runner.DefaultLinger
	if intro.Linger != nil {
		e.linger.length = min(max(*intro.Linger, 0), runner.MaxLinger)
	}
	e.linger.retired = e.linger.retired || intro.Retire
}

// stopLingering ends the runner, unless a caller came while t ran out.
func (e *Engine) stopLingering(t *time.Timer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting && e.linger.timer == t && !e.serving() {
		e.accepting = false
		close(e.idle)
	}
}

// replaced reports whether the program that this process runs was removed or replaced on disk.
func replaced() bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/exe", &st) == nil && st.Nlink == 0
}

// watchProgram ends a runner that lingers when its program is replaced. Without inotify the runner lingers its time
// out.
func (e *Engine) watchProgram() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if _, err := unix.InotifyAddWatch(fd, "/proc/self/exe", unix.IN_ATTRIB|unix.IN_DELETE_SELF); err != nil {
		return
	}
	var events [4096]byte
	for {
		if _, err := f.Read(events[:]); err != nil {
			return
		}
		if replaced() {
			e.mu.Lock()
			t := e.linger.timer
			e.mu.Unlock()
			if t != nil {
				e.stopLingering(t)
			}
			return
		}
	}
}
