// Package freeze has the processes of a sandbox hold still, and lets them go on.
//
//	f, err := pause.Pause(pid1)      // every process below PID 1 is stopped
//	… look at what they write …
//	f.Thaw()
//
// It is SIGSTOP, sent by pidfd to each descendant of PID 1, which itself goes on: it only does what
// it is told. So it works where there is no control group to freeze, and is not hidden: a process
// that handles SIGCONT is told, and a system call that signal(7) lists may return EINTR. Parents have stopped before their
// children are told to, and are continued after them; so a shell never sees a job of its own stopped. What was
// stopped already stays so.
//
// A control group's freezer is not used, where there is one. It holds a group, and a sandbox has one, so PID 1 would be held with
// the rest: nobody would answer the runner, nor see it die. In a frozen group of version 1 SIGKILL waits until it is thawed, so
// after a kill -9 of the runner the sandbox would stay, frozen, with nobody to thaw it; in version 2 it does not
// (cgroup.freeze, Documentation/admin-guide/cgroup-v2.rst), but that has to be delegated, and most users have none. With
// one way for all a sandbox behaves alike wherever it runs, and whoever dies, the kernel takes it down as ever.
//
// A process that is stopped writes no more, in none of its threads. It cannot be kept from being killed, nor from having itself
// continued: [Paused.Held] tells.
package pause

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRestless says that there was no moment in which all processes were stopped: they are started
// faster than they are found, or one waits in the kernel.
var ErrRestless = errors.New("its processes do not hold still")

// patience bounds a Pause. What is not still by then, such as a fork bomb, will not be soon.
const patience = 5 * time.Second

// Paused is what was stopped. The zero value is nothing.
type Paused struct {
	order []int       // pids, parents first
	fds   map[int]int // pid → pidfd
	pid1  int
	runs  map[string]string // of each thread, see Held
}

// Alone says whether pid1 has no descendant.
func Alone(pid1 int) bool { return len(below(pid1)) == 0 }

// Pause stops every descendant of pid1, a process of this pid namespace. On an error they go on.
func Pause(pid1 int) (*Paused, error) {
	f := &Paused{fds: map[int]int{}}
	seen := map[int]bool{}
	for deadline, pause := time.Now().Add(patience), 50*time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		still := true
		for _, pid := range below(pid1) {
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
		if time.Now().After(deadline) {
			f.Thaw()
			return nil, fmt.Errorf("stop processes: %w", ErrRestless)
		}
		time.Sleep(pause)
	}
}

// stop stops one process, unless it was stopped by somebody else. That pid is what was seen is asked once it can
// be no other.
func (f *Paused) stop(pid1, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone
	}
	if !descends(pid, pid1) || all(pid, stopped) || unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0) != nil {
		unix.Close(fd)
		return
	}
	f.order, f.fds[pid] = append(f.order, pid), fd
}

// Thaw lets what was stopped go on. It may be called again.
func (f *Paused) Thaw() {
	for _, pid := range slices.Backward(f.order) {
		unix.PidfdSendSignal(f.fds[pid], unix.SIGCONT, nil, 0)
		unix.Close(f.fds[pid])
	}
	f.order, f.fds = nil, nil
}

// mostProcesses ends a walk that chases a fork bomb.
const mostProcesses = 1 << 16

// below lists the descendants of pid1, parents first. One that is forked during the walk may be missing;
// the next walk has it.
func below(pid1 int) []int {
	found := []int{pid1}
	for i := 0; i < len(found) && len(found) < mostProcesses; i++ {
		for _, t := range tasks(found[i]) {
			text, _ := os.ReadFile(t + "/children")
			for word := range bytes.FieldsSeq(text) {
				if pid, err := strconv.Atoi(string(word)); err == nil {
					found = append(found, pid)
				}
			}
		}
	}
	return found[1:]
}

// tasks are the directories of a process's threads.
func tasks(pid int) []string {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	return names
}

// all says whether every thread of a process is like that.
func all(pid int, like func(task string) bool) bool {
	return !slices.ContainsFunc(tasks(pid), func(t string) bool { return !like(t) })
}

// stopped is of a thread that can do nothing, because it is stopped or dead.
func stopped(task string) bool {
	state, _ := stat(task + "/stat")
	return state == 0 || bytes.IndexByte([]byte("TtZX"), state) >= 0
}

// inert is also of one that will be stopped before it can do anything.
func inert(task string) bool {
	state, _ := stat(task + "/stat")
	return stopped(task) || state == 'D' && waitsForChild(task)
}

// waitsForChild says whether a thread is in the middle of vfork(2), and so cannot be stopped before its child has executed
// something. The child is stopped, so neither does anything.
func waitsForChild(task string) bool {
	text, err := os.ReadFile(task + "/syscall")
	if err != nil {
		return false
	}
	word, _, _ := bytes.Cut(text, []byte(" "))
	n, err := strconv.Atoi(string(word))
	const vfork = 58 // of amd64; arm64 has none
	return err == nil && (n == unix.SYS_CLONE || n == unix.SYS_CLONE3 || n == vfork && runtime.GOARCH == "amd64")
}

// descends follows the parents of pid.
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

// stat reads state and parent of proc_pid_stat(5). The command's name may contain anything, so fields count from the
// last ')'. State is 0 if there is no such process.
func stat(path string) (state byte, parent int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	f := bytes.Fields(rest)
	if len(f) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(f[1]))
	return f[0][0], parent
}
