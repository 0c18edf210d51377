package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/doctor"
	"demesne/runner/limits/cgroup"
	"demesne/runner/store"
	"demesne/runner/userns"
)

// reap cleans up after a killed runner, and returns an exit code. It removes what the kernel does not remove by itself.
//
// It runs with the caller's rights in the process that package userns calls A. That process still holds the
// runner's lock, so no new runner starts before reap has finished. Reap works in this order: it kills the processes
// that it inherited as child subreaper; it settles the directories of sandboxes and removes their sockets; it
// records the end of the runner's sandboxes; it removes the trees of sandboxes without namespaces and the remains
// of a check; it removes the paths that A was given, the lock last. Mounts and namespaces ended with the runner.
func reap() int {
	killOrphans()
	run, key := os.Getenv(userns.EnvRun), os.Getenv(userns.EnvKey)
	code := report(takeBack(run, key))
	store.OpenHistory(filepath.Join(run, "state")) // records the end of the runner's sandboxes
	os.RemoveAll(filepath.Join(run, "scratch", key))
	for _, dir := range doctor.Left(run, key) {
		if err := doctor.Remove(dir); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: reap: %v\n", err)
			code = 1
		}
	}
	for _, err := range removeAll(strings.Split(os.Getenv(userns.EnvClean), "\n"), removeOne, time.Sleep) {
		fmt.Fprintf(os.Stderr, "demesne-runner: reap: %v\n", err)
		code = 1
	}
	if os.Getenv(userns.EnvSIGSYS) != "" {
		return userns.ExitSIGSYS
	}
	return code
}

// reapFor bounds the total pause of a reaper. A path that is busy for longer is left to the next runner of the
// same name. An example is the control group of a process that a dead disk blocks.
const reapFor = time.Minute

// removeAll removes the paths in order; the last is the lock. On a starved machine a killed process, and with it
// its control group, may exist for long. No other process will remove it, so removeAll retries a busy path after
// increasing pauses.
func removeAll(paths []string, remove func(string) error, sleep func(time.Duration)) (errs []error) {
	slept, pause := time.Duration(0), 10*time.Millisecond
	for _, path := range paths {
		err := remove(path)
		for ; errors.Is(err, unix.EBUSY) && slept < reapFor; err = remove(path) {
			sleep(pause)
			slept, pause = slept+pause, min(2*pause, 5*time.Second)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func removeOne(path string) error {
	st, err := os.Lstat(path)
	switch {
	case path == "" || os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case st.IsDir():
		return cgroup.Reap([]string{path})
	}
	return os.Remove(path)
}

// killOrphans kills the processes that this child subreaper inherited: a PID 1 in the making, or the processes of a
// sandbox without namespaces. The death of a PID 1 kills its whole pid namespace (pid_namespaces(7)).
func killOrphans() {
	for {
		for _, pid := range children() {
			unix.Kill(pid, unix.SIGKILL)
		}
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			return
		}
	}
}

func children() []int {
	var pids []int
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
