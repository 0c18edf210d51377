package pid1

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killDescendants ends what a sandbox without a pid namespace leaves behind. As
// subreaper, PID 1 is the parent of every orphan, so the tree below it is complete.
//
// With Landlock's signal scope, seen to hold in setup, one call does it: the spawner
// can signal its own domain and nothing else, and kill(-1) is atomic against fork.
// Without, the tree is walked until it is empty; a chain of processes that fork and
// exit faster than it is read could outrun that, so the number of rounds is bounded.
func (g *guest) killDescendants() {
	for range 10_000 {
		if g.signalScope {
			unix.Kill(-1, unix.SIGKILL)
		} else {
			for _, pid := range descendants(os.Getpid(), nil) {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		// The reaper is at work as well; either finds that there is none left.
		if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); is(err, unix.ECHILD) {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// descendants appends the processes below pid, nearest first.
func descendants(pid int, out []int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir(tasks)
	for _, t := range threads {
		children, _ := os.ReadFile(tasks + t.Name() + "/children")
		for _, f := range strings.Fields(string(children)) {
			if child, err := strconv.Atoi(f); err == nil {
				out = descendants(child, append(out, child))
			}
		}
	}
	return out
}
