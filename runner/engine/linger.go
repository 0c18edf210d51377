package engine

import (
	"time"

	"golang.org/x/sys/unix"
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
// to end now. served means that the runner made a sandbox.
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

// replaced reports whether the program that this process runs was removed or replaced on disk.
func replaced() bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/exe", &st) == nil && st.Nlink == 0
}
