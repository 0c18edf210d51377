package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times of a service.
const (
	firstDelay = 100 * time.Millisecond // before the first restart; it doubles
	lastDelay  = 30 * time.Second
	longRun    = 5 * time.Second // a service that ran so long restarts after firstDelay
	stopGrace  = 5 * time.Second // from SIGTERM to SIGKILL
	allGrace   = 10 * time.Second
)

// supervisor runs services. All its methods run on one goroutine.
type supervisor struct {
	list    []*service
	env     []string
	null    *os.File
	changed chan os.Signal // SIGCHLD
	due     chan int       // services whose delay is over, by their place in list
	ended   map[int]unix.WaitStatus
}

// supervise starts the services of a directory, tells ready, and returns after SIGTERM when they have ended.
func supervise(dir string, port uint16, ready func(error)) error {
	v := &supervisor{env: os.Environ(), changed: make(chan os.Signal, 1), due: make(chan int, maxServices), ended: map[int]unix.WaitStatus{}}
	end := make(chan os.Signal, 1)
	signal.Notify(v.changed, syscall.SIGCHLD)
	signal.Notify(end, syscall.SIGTERM)
	var err error
	if v.list, err = services(dir); err != nil {
		return err
	}
	if v.null, err = os.OpenFile("/dev/null", os.O_RDWR, 0); err != nil {
		return err
	}
	if err := v.initialize(filepath.Join(dir, initDir)); err != nil {
		return err
	}
	for n := range v.list {
		v.start(n)
	}
	answered := make(chan error, 1)
	go func() { answered <- await(port) }()
	for {
		select {
		case err := <-answered:
			if err != nil {
				v.stop()
				return err
			}
			ready(nil)
		case <-v.changed:
			v.restart()
		case n := <-v.due:
			v.start(n)
		case <-end:
			v.stop()
			return nil
		}
	}
}

// initialize executes the scripts of a directory, one after another. They share a log.
func (v *supervisor) initialize(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	variables := filepath.Join(Logs, "variables")
	for _, e := range entries {
		s := &service{name: initDir, argv: []string{filepath.Join(dir, e.Name())}}
		switch runs := executable(s.argv[0]); {
		case strings.HasPrefix(e.Name(), ".") || !runs && !strings.HasSuffix(e.Name(), ".sh"):
			continue
		case !runs:
			s.argv = []string{"/bin/sh", "-c", `. "$0" && cat /proc/self/environ >"$1"`, s.argv[0], variables}
		}
		if err := v.fork(s, 0); err != nil {
			return fmt.Errorf("execute %q of %s: %w", e.Name(), initDir, err)
		}
		for v.reap(); !v.has(s.pid); v.reap() {
			<-v.changed
		}
		if status := v.ended[s.pid]; status.ExitStatus() != 0 {
			return fmt.Errorf("%q of %s %s: see %s", e.Name(), initDir, how(status), s.log.Name())
		}
		if text, err := os.ReadFile(variables); err == nil && os.Remove(variables) == nil && len(text) > 0 {
			v.env = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		}
	}
	return nil
}

// fork executes the nth service.
func (v *supervisor) fork(s *service, n int) (err error) {
	if s.log != nil {
		s.log.Close()
	}
	s.log, s.began = s.openLog(n), time.Now()
	s.pid, err = syscall.ForkExec(s.argv[0], s.argv, &syscall.ProcAttr{
		Dir: s.dir, Env: v.env, Files: []uintptr{v.null.Fd(), s.log.Fd(), s.log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		s.pid = 0
	}
	return err
}

// start starts the nth service. One that cannot start is tried again, as one that fails.
func (v *supervisor) start(n int) {
	if s := v.list[n]; v.fork(s, n) != nil {
		v.later(n, "cannot start")
	}
}

// later starts a service after its delay.
func (v *supervisor) later(n int, why string) {
	s := v.list[n]
	if time.Since(s.began) >= longRun {
		s.failed = 0
	}
	wait := min(firstDelay<<min(s.failed, 20), lastDelay)
	s.failed++
	fmt.Fprintf(s.log, "demesne: %s: starts again after %s\n", why, wait)
	time.AfterFunc(wait, func() { v.due <- n })
}

// reap collects the children that have ended.
func (v *supervisor) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err != unix.EINTR && pid <= 0 {
			return
		}
		v.ended[pid] = status
	}
}

// restart plans the restart of the services that have ended.
func (v *supervisor) restart() {
	v.reap()
	for n, s := range v.list {
		if status, ended := v.ended[s.pid]; ended && s.pid != 0 {
			s.pid = 0
			v.later(n, how(status))
		}
	}
	clear(v.ended)
}

// stop ends the services in the reverse order: each has ended before the one that started earlier gets SIGTERM.
func (v *supervisor) stop() {
	all, cancel := context.WithTimeout(context.Background(), allGrace)
	defer cancel()
	for _, s := range slices.Backward(v.list) {
		if s.pid == 0 {
			continue
		}
		unix.Kill(-s.pid, unix.SIGTERM)
		for grace := time.After(stopGrace); all.Err() == nil; {
			if v.reap(); v.has(s.pid) {
				break
			}
			select {
			case <-v.changed:
			case <-grace:
				unix.Kill(-s.pid, unix.SIGKILL)
			case <-all.Done():
			}
		}
		unix.Kill(-s.pid, unix.SIGKILL) // what is left of its group
		fmt.Fprintln(s.log, "demesne: stopped")
	}
}

func (v *supervisor) has(pid int) bool {
	_, ended := v.ended[pid]
	return ended
}

// how says how a process ended.
func how(status unix.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("ended by signal %d", status.Signal())
	}
	return fmt.Sprintf("exited with %d", status.ExitStatus())
}

// readyTime bounds the wait for a port.
const readyTime = time.Minute

// await waits until a port answers.
func await(port uint16) error {
	if port == 0 {
		return nil
	}
	for deadline := time.Now().Add(readyTime); ; time.Sleep(10 * time.Millisecond) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
		unix.Close(fd)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("port %d did not answer within %s: see %s", port, readyTime, Logs)
		}
	}
}
