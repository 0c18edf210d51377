package sandbox

import (
	"time"

	"golang.org/x/sys/unix"
)

// askToEnd sends the stop signal to every process of the sandbox, except PID 1. Those that are stopped continue, because
// they could not act on it. It reports whether the sandbox has processes.
func (s *Sandbox) askToEnd() bool {
	<-s.built
	sig := unix.SIGTERM
	if r := s.spec.Rootfs; r != nil && r.StopSignal != 0 {
		sig = unix.Signal(r.StopSignal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || s.init.pid == 0 {
		return false
	}
	s.idle.wake()
	all := below(s.init.pid)
	for _, pid := range all {
		ask(s.init.pid, pid, sig)
	}
	return len(all) > 0
}

// ask signals one process. It checks the process's ancestry after it opened the pidfd, when pid can no longer be
// reused.
func ask(pid1, pid int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has exited
	}
	defer unix.Close(fd)
	if !descends(pid, pid1) {
		return
	}
	unix.PidfdSendSignal(fd, sig, nil, 0)
	unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
}

// waitAlone waits until pid1 has no descendant or grace is over. It also returns if pid1 is gone.
func waitAlone(pid1 int, grace time.Duration) {
	for deadline := time.Now().Add(grace); time.Now().Before(deadline) && !alone(pid1); {
		time.Sleep(10 * time.Millisecond)
	}
}
