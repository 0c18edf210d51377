package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/runner/limits/cgroup"
	"demesne/runner/userns"
)

// Reap cleans up after a runner that was killed. It runs in the process that package
// userns calls A, with the caller's own rights, and still holds the runner's lock:
// no new runner starts before it is through.
func Reap() int {
	killOrphans()
	run, key := os.Getenv("_DEMESNE_RUN"), os.Getenv("_DEMESNE_KEY")
	openState(filepath.Join(run, "state")) // which buries the runner's sandboxes
	os.RemoveAll(filepath.Join(run, "scratch", key))
	code := 0
	for _, dir := range probesLeft(run, key) {
		if err := removeProbe(dir); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: reap: %v\n", err)
			code = 1
		}
	}
	for _, path := range strings.Split(os.Getenv(userns.EnvClean), ":") {
		if err := removeOne(path); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: reap: %v\n", err)
			code = 1
		}
	}
	return code
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
