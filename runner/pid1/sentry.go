package pid1

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/ipc"
)

// killDescendants kills the remaining processes of a sandbox without a pid namespace. As subreaper, PID 1 is
// the parent of every orphan, so the tree below it is complete.
//
// If setup verified Landlock's signal scope, one call is enough: the spawner can signal only its own domain,
// and kill(-1) is atomic against fork. Otherwise it walks the tree until the tree is empty. A chain of
// processes that fork and exit faster than the walk could escape it, so the number of rounds is bounded.
func (g *guest) killDescendants() {
	for range 10_000 {
		if g.signalScope {
			unix.Kill(-1, unix.SIGKILL)
		} else {
			for _, pid := range descendants(os.Getpid(), nil) {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		// The reaper runs concurrently; either may find that no child is left.
		if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); is(err, unix.ECHILD) {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// killAll kills every other process of the pid namespace, and returns when the reaper has reaped them all. Orphans are
// PID 1's children, so none is left when PID 1 has no child. Call it on the spawner.
func (g *guest) killAll() error {
	if g.setup.Subreaper {
		return ipc.Errorf(ipc.CodeInvalid, "kill all processes: this sandbox has no pid namespace")
	}
	for range 20_000 {
		unix.Kill(-1, unix.SIGKILL)
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if is(err, unix.ECHILD) {
			return nil
		}
		time.Sleep(100 * time.Microsecond)
	}
	return ipc.Errorf(ipc.CodeInternal, "kill all processes: one does not end")
}

// descendants appends the processes below pid, each parent before its children.
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
