package sandbox

// A paused sandbox has its processes stopped. stopProcesses sends SIGSTOP by pidfd to each descendant of PID 1. PID 1
// itself continues, because it acts only on the runner's requests. This works without a control group, but processes
// can notice it. A process that handles SIGCONT runs its handler, and a system call listed in signal(7) may return
// EINTR. Children are stopped after their parents and continued before them, so a shell never sees its own job stopped.
// Processes stopped earlier remain stopped.
//
// The freezer of a control group is not used, for three reasons. A freezer stops a whole group, so PID 1 would stop too,
// and could neither answer the runner nor notice its death. In a frozen group of version 1, SIGKILL takes effect only
// after a thaw. After a kill -9 of the runner the sandbox would remain frozen forever. Version 2 has no such problem
// (cgroup.freeze, Documentation/admin-guide/cgroup-v2.rst), but most users have no delegated group. With one mechanism a
// sandbox behaves alike on every machine, and the kernel ends it as usual when the runner or PID 1 dies.
//
// A stopped process writes no more, in any of its threads. It can still be killed. It can also arrange to be continued,
// which [stoppedProcesses.Held] detects.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// errRestless means that at no moment all processes were stopped. They fork faster than stopProcesses finds them, or
// one is blocked in the kernel.
var errRestless = errors.New("its processes could not all be stopped")

// patience bounds stopProcesses. A process that still runs by then, such as a fork bomb, is unlikely to stop soon.
const patience = 5 * time.Second

// stoppedProcesses holds the stopped processes. The zero value holds none.
type stoppedProcesses struct {
	order []int       // pids, parents first
	fds   map[int]int // pid → pidfd
	pid1  int
	runs  map[string]string // of each thread, see Held
}

// alone reports whether pid1 surely has no descendant.
func alone(pid1 int) bool {
	pids, err := descendants(pid1)
	return err == nil && len(pids) == 0
}

// stopProcesses stops every descendant of pid1, a process of this pid namespace. On an error it continues them.
func stopProcesses(pid1 int) (*stoppedProcesses, error) {
	f := &stoppedProcesses{fds: map[int]int{}}
	seen := map[int]bool{}
	for deadline, pause := time.Now().Add(patience), 50*time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		pids, err := descendants(pid1)
		still := err == nil
		for _, pid := range pids {
			if !seen[pid] {
				still = false
				if _, parent := stat("/proc/" + strconv.Itoa(pid) + "/stat"); parent == pid1 || all(parent, inert) {
					seen[pid] = true
					f.stop(pid1, pid)
				}
			}
			still = still && all(pid, inert)
		}
		if still {
			f.remember(pid1)
			return f, nil
		}
		if err == nil && time.Now().After(deadline) {
			err = errRestless
		}
		if err != nil {
			f.Resume()
			return nil, fmt.Errorf("stop processes: %w", err)
		}
		time.Sleep(pause)
	}
}

// stop stops one process, unless another process has stopped it already. It checks the process's ancestry after
// it opened the pidfd, when pid can no longer be reused.
func (f *stoppedProcesses) stop(pid1, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has exited, or stopProcesses sees that it still runs
	}
	if !descends(pid, pid1) || all(pid, stopped) || unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0) != nil {
		unix.Close(fd)
		return
	}
	f.order, f.fds[pid] = append(f.order, pid), fd
}

// notGone returns err unless it means that a process or thread has exited.
func notGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Resume continues the stopped processes. It may be called again.
func (f *stoppedProcesses) Resume() {
	for _, pid := range slices.Backward(f.order) {
		unix.PidfdSendSignal(f.fds[pid], unix.SIGCONT, nil, 0)
		unix.Close(f.fds[pid])
	}
	f.order, f.fds = nil, nil
}

// mostProcesses stops a walk that chases a fork bomb.
const mostProcesses = 1 << 16

// below lists those descendants of pid1 that it can find.
func below(pid1 int) []int {
	pids, _ := descendants(pid1)
	return pids
}

// descendants lists the descendants of pid1, parents first. A process forked during the walk may be missing until the
// next walk.
func descendants(pid1 int) (pids []int, err error) {
	found := []int{pid1}
	for i := 0; i < len(found) && len(found) < mostProcesses; i++ {
		threads, terr := tasks(found[i])
		err = cmp.Or(err, terr)
		for _, t := range threads {
			text, terr := os.ReadFile(t + "/children")
			err = cmp.Or(err, notGone(terr))
			for word := range bytes.FieldsSeq(text) {
				if pid, err := strconv.Atoi(string(word)); err == nil {
					found = append(found, pid)
				}
			}
		}
	}
	return found[1:], err
}

// tasks lists the /proc directories of a process's threads.
func tasks(pid int) ([]string, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	f, err := os.Open(dir)
	if err != nil {
		return nil, notGone(err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	return names, notGone(err)
}

// all reports whether like holds for every thread of a process.
func all(pid int, like func(task string) bool) bool {
	threads, err := tasks(pid)
	return err == nil && !slices.ContainsFunc(threads, func(t string) bool { return !like(t) })
}

// stopped reports whether a thread can do nothing, because it is stopped or dead.
func stopped(task string) bool {
	state, _ := stat(task + "/stat")
	return state == 0 || bytes.IndexByte([]byte("TtZX"), state) >= 0
}

// inert reports whether a thread is stopped or will be stopped before it can do anything.
func inert(task string) bool {
	state, _ := stat(task + "/stat")
	return stopped(task) || state == 'D' && waitsForChild(task)
}

// waitsForChild reports whether a thread is inside vfork(2). Such a thread cannot be stopped before its child
// calls execve or exits. The child is stopped, so neither runs.
func waitsForChild(task string) bool {
	text, err := os.ReadFile(task + "/syscall")
	if err != nil {
		return false
	}
	word, _, _ := bytes.Cut(text, []byte(" "))
	n, err := strconv.Atoi(string(word))
	const vfork = 58 // amd64 only; arm64 has no vfork
	return err == nil && (n == unix.SYS_CLONE || n == unix.SYS_CLONE3 || n == vfork && runtime.GOARCH == "amd64")
}

// descends reports whether from is pid or one of its ancestors.
func descends(pid, from int) bool {
	for pid != from {
		_, parent := stat("/proc/" + strconv.Itoa(pid) + "/stat")
		if parent <= 1 {
			return false
		}
		pid = parent
	}
	return true
}

// stat reads the state and the parent from proc_pid_stat(5). The command name may contain any character, so
// fields count from the last ')'. State is 0 if the process does not exist, and '?' if it cannot be read.
func stat(path string) (state byte, parent int) {
	text, err := os.ReadFile(path)
	if notGone(err) != nil {
		return '?', 0
	}
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	f := bytes.Fields(rest)
	if len(f) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(f[1]))
	return f[0][0], parent
}
