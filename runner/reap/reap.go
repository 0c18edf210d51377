// Package reap cleans up after a runner that was killed: what the kernel does not take away by itself.
//
// It runs in the process that package userns calls A, with the caller's own rights, and that still
// holds the runner's lock: no new runner starts before it is through. In this order go the
// processes that were left to it, the child subreaper; what sandboxes were given, which is settled; the runner's records of what lived; the trees of
// sandboxes without namespaces; what a check tried; and what A was told to remove, the lock at
// last. Mounts and namespaces went with the runner.
package reap

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

// Run does it, and returns an exit code.
func Run() int {
	killOrphans()
	run, key := os.Getenv(userns.EnvRun), os.Getenv(userns.EnvKey)
	code := report(takeBack(run, key))
	store.OpenHistory(filepath.Join(run, "state")) // which buries the runner's sandboxes
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
	return code
}

// reapFor bounds the pauses of a reaper. What is busy for longer, such as the group of a process that a dead disk holds,
// is left to the next runner of the same name.
const reapFor = time.Minute

// removeAll removes each path, one after the other: the last is the lock. On a starved machine what was killed may take long to be
// gone, and its control group with it: nobody but us will look after that, so what is busy is tried again, after ever longer pauses.
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

// killOrphans kills what the kernel left to us, the child subreaper: a PID 1 that
// was still being made, or the processes of a sandbox without namespaces. The death
// of one PID 1 is the death of all in its pid namespace.
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
