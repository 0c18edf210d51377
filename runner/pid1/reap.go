package pid1

import (
	"time"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// reaper waits for every child, PID 1's own and the sandbox's orphans, and reports the exits of commands. It
// sleeps in waitid without reaping: reap releases pids to the kernel only under mu.
func (g *guest) reaper() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			g.reap()
		case is(err, unix.EINTR):
		default: // ECHILD: no child until a command starts
			<-g.started
		}
	}
}

// reap reaps all children that have exited.
func (g *guest) reap() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		if is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		exec, ok := g.running[pid]
		if !ok {
			continue
		}
		delete(g.running, pid)
		delete(g.pids, exec)
		// Ignore the error: it means the runner has gone, which the spawner detects.
		g.peer.Event(pid1api.OpExited, pid1api.Exited{
			Exec:   exec,
			Status: uint32(status),
			MaxRSS: usage.Maxrss,
			UTime:  time.Duration(usage.Utime.Nano()),
			STime:  time.Duration(usage.Stime.Nano()),
		})
	}
}
