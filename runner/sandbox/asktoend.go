package sandbox

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

const (
	maxGrace  = time.Hour
	graceStep = 20 * time.Millisecond // interval at which processes are counted
)

// askToEnd sends the stop signal of the image to every process of s, and returns when all have ended or grace is over.
// The signal goes to all of them, and not only to those that commands started: a shell often ends without its
// children. A process that is forked meanwhile may not get it.
func (s *Sandbox) askToEnd(grace time.Duration) {
	<-s.built
	s.starting.Lock() // no command starts between the two steps
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.idle.wake() // a stopped process could not handle the signal
	}
	s.mu.Unlock()
	if !ending {
		signalBelow(s.init.pid, stopSignal(s.spec))
	}
	s.starting.Unlock()
	tick := time.NewTicker(graceStep)
	defer tick.Stop()
	for deadline := time.Now().Add(grace); !ending && time.Now().Before(deadline) && !alone(s.init.pid); {
		select {
		case <-s.finished:
			return
		case <-tick.C:
		}
	}
}

// stopSignal returns the image's signal.
func stopSignal(spec runner.Spec) unix.Signal {
	if r := spec.Rootfs; r != nil {
		return unix.Signal(cmp.Or(r.StopSignal, int(unix.SIGTERM)))
	}
	return unix.SIGTERM
}

// signalBelow sends a signal to every descendant of pid1. It checks a process's ancestry after it opened the pidfd,
// when the pid can no longer be reused.
func signalBelow(pid1 int, sig unix.Signal) {
	for _, pid := range below(pid1) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has exited
		}
		if descends(pid, pid1) {
			unix.PidfdSendSignal(fd, sig, nil, 0)
		}
		unix.Close(fd)
	}
}
