package pid1

import (
	"time"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// reaper waits for every child, ours and those the sandbox orphaned, and reports the
// commands among them. It sleeps in waitid, which leaves the child unreaped: pids are
// given back to the kernel only under mu.
func (g *guest) reaper() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			g.reap()
		case is(err, unix.EINTR):
		default: // ECHILD: nothing to wait for until a command is started
			<-g.started
		}
	}
}

// reap reaps whatever has ended.
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
		// An error is the spawner's to see: the runner is gone.
		g.peer.Event(pid1api.OpExited, pid1api.Exited{
			Exec:   exec,
			Status: uint32(status),
			MaxRSS: usage.Maxrss,
			UTime:  time.Duration(usage.Utime.Nano()),
			STime:  time.Duration(usage.Stime.Nano()),
		})
	}
}
