package limits

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A sandbox is still while it has no process but PID 1: nothing in it can take memory, processes or disk. Its watch then
// rests, so that thousands of idle sandboxes cost the runner little. A rest ends when a command starts (see
// [Group.Stir]), and after restMost in any case.
const restMost = diskAnew

// Stir ends the rests of the watch. Call it after a process was started in the sandbox by other means than a fork of
// its own processes.
func (g *Group) Stir() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stirred != nil {
		close(g.stirred)
		g.stirred = nil
	}
}

// stillness is what a part of the watch knows about how long the sandbox is still.
type stillness struct {
	stirred <-chan struct{} // see watch.still
	since   time.Time       // no process but PID 1 has run since then; set if stirred is
}

// look updates s. Another channel than the last one means that a command started and ended since.
func (s *stillness) look(w *watch, pid1 int, now time.Time) {
	stirred := w.still(pid1)
	if stirred != s.stirred {
		s.stirred, s.since = stirred, now
	}
}

// still returns a channel that Stir closes if the sandbox is still now, and nil otherwise. The channel is made before
// the processes are counted, so no start of a command falls between.
func (w *watch) still(pid1 int) <-chan struct{} {
	g := w.g
	g.mu.Lock()
	if g.stirred == nil {
		g.stirred = make(chan struct{})
	}
	stirred := g.stirred
	threads := threadsOf(pid1) // before and after: a new thread of PID 1 must not hide a process
	tasks, counted := g.tasks()
	g.mu.Unlock()
	if counted && (tasks != threads || tasks != threadsOf(pid1)) || !counted && !childless(pid1) {
		return nil
	}
	return stirred
}

// tasks returns the number of threads in the sandbox, if a control group counts them. g.mu is held.
func (g *Group) tasks() (n int64, ok bool) {
	s, _ := g.seatOf("pids")
	if s == nil {
		return 0, false
	}
	text, err := s.outer.Read("pids.current")
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// threadsOf returns the number of threads of a process, or -1: the kernel adds it to the links of the directory.
func threadsOf(pid int) int64 {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/task", pid), &st) != nil {
		return -1
	}
	return int64(st.Nlink) - 2
}

// childless reports whether pid1 has no descendant. A walk can miss a process whose parent ends meanwhile, but then
// pid1 reaps that parent and counts its page faults.
func childless(pid1 int) bool {
	before, ok := reaped(pid1)
	pids, _ := processesUpTo(pid1, maxProcesses)
	after, lives := reaped(pid1)
	return ok && lives && len(pids) == 1 && before == after
}

// reaped returns the page faults of the children that a process has waited for (cminflt of proc_pid_stat(5)).
func reaped(pid int) (faults int64, ok bool) {
	var buf [512]byte
	text, err := slurp("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return 0, false
	}
	return field(text[bytes.LastIndexByte(text, ')')+1:], 8), true
}

// rest sleeps until the next poll, or until stirred is closed. It returns false when the watch must stop.
func (w *watch) rest(d time.Duration, stirred <-chan struct{}) bool {
	t := time.NewTimer(together(time.Now(), d))
	defer t.Stop()
	select {
	case <-w.quit:
		return false
	case <-stirred:
	case <-t.C:
	}
	return true
}

// settled reports whether a look has found all that the sandbox wrote before it was still.
func (d *disk) settled(since time.Time, now space) bool {
	return d.exact && !d.looking && !d.open && d.doubt == 0 && d.clean == 0 && !low(now) && d.looked.Add(-d.cost).After(since)
}

// excuse attributes to other programs what the file system lost while the sandbox was still.
func (d *disk) excuse(now space) {
	d.others = d.lost(now).minus(d.grown)
	d.seen, d.last = now, now
}
