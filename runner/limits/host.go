package limits

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
	"demesne/runner/limits/systemd"
)

// Host is what this machine lets the runner limit with, found once by [Open].
type Host struct {
	places   []*hierarchy
	attempts []attempt
	pressure pressure
	ledger   ledger
}

// hierarchy is a group below which the runner may make one for each sandbox.
type hierarchy struct {
	version     int // of cgroup
	dir         *cgroup.Dir
	controllers []string
	thread      thread // version 2: whoever moves processes must look from in there
}

// attempt is how trying one mechanism went.
type attempt struct {
	name string
	err  error // nil: taken
}

// mechanism is a way to a control group.
type mechanism struct {
	name string
	open func(key string, mine *discovery) ([]*hierarchy, error)
}

// discovery is the version 2 group the runner is in, opened by the first that asks: to open
// it takes a mount of the hierarchy.
type discovery struct {
	once sync.Once
	dir  *cgroup.Dir
	err  error
}

func (l *discovery) open() (*cgroup.Dir, error) {
	l.once.Do(func() { l.dir, l.err = ownGroup() })
	return l.dir, l.err
}

func (l *discovery) close() {
	if l.dir != nil {
		l.dir.Close()
	}
}

// mechanisms in order of trying; the first that gives something is taken.
var mechanisms = []mechanism{
	{"cgroups prepared by root", prepared},
	{"the runner's own delegated cgroup2", func(_ string, mine *discovery) ([]*hierarchy, error) { return own("memory", mine) }},
	{"a cgroup2 scope of the user's systemd", scope},
	{"part of the runner's own cgroup2", func(_ string, mine *discovery) ([]*hierarchy, error) { return own("", mine) }},
}

// Open finds the mechanism for the runner called key. It never fails: without any
// control group, rlimits and the watchdog are left. It opens what it will need, so
// the caller may mount over /sys/fs/cgroup afterwards.
//
// prepared says that real root made groups for key; to look for them without being
// told costs a mount for each hierarchy.
func Open(key string, prepared bool) *Host {
	if prepared {
		return open(key, mechanisms)
	}
	h := open(key, mechanisms[1:])
	h.attempts = append([]attempt{{mechanisms[0].name, errNone}}, h.attempts...)
	return h
}

var errNone = errors.New("none")

func open(key string, table []mechanism) *Host {
	h := &Host{pressure: pressure{used: map[*Group]share{}}}
	mine := &discovery{}
	defer mine.close()
	for _, m := range table {
		places, err := m.open(key, mine)
		if err == nil && len(places) == 0 {
			err = errors.New("it has none of memory, pids, cpu")
		}
		h.attempts = append(h.attempts, attempt{m.name, err})
		if err == nil {
			h.places = places
			break
		}
	}
	return h
}

// hierarchy returns where the controller is, or nil.
func (h *Host) place(controller string) *hierarchy {
	for _, p := range h.places {
		for _, c := range p.controllers {
			if c == controller {
				return p
			}
		}
	}
	return nil
}

// why tells in one line why there is no group with the controller.
func (h *Host) why(controller string) string {
	if n := len(h.attempts); n > 0 && h.attempts[n-1].err == nil {
		return fmt.Sprintf("no %s controller in %s", controller, h.attempts[n-1].name)
	}
	var parts []string
	for _, a := range h.attempts {
		parts = append(parts, fmt.Sprintf("%s: %v", a.name, a.err))
	}
	return strings.Join(parts, "; ")
}

// Probe is the line of `demesne check` on control groups.
func (h *Host) Probe() runner.Probe {
	p := runner.Probe{Name: "cgroup", Status: runner.Held}
	var missing []string
	for _, c := range cgroup.Controllers {
		if h.place(c) == nil {
			missing = append(missing, c)
		}
	}
	switch {
	case len(h.places) == 0:
		p.Status, p.Detail = runner.Missing, "rlimits and a watchdog stand in"
	case len(missing) > 0:
		p.Status, p.Detail = runner.Degraded, h.attempts[len(h.attempts)-1].name
	default:
		p.Detail = h.attempts[len(h.attempts)-1].name
	}
	if len(missing) > 0 {
		p.Why, p.Fix = h.why(strings.Join(missing, ", ")), fix(lookAround())
	}
	return p
}

// surroundings decide what to type to get a control group.
type surroundings struct {
	root    bool // outside any user namespace
	systemd bool // it booted this machine
	bus     bool // the user's own can be asked
	unified bool // version 2 at /sys/fs/cgroup
}

func lookAround() surroundings {
	uid, err := systemd.HostUID()
	_, noBoot := os.Stat("/run/systemd/system")
	var fs unix.Statfs_t
	unified := unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
	return surroundings{
		root:    err == nil && uid == 0,
		systemd: noBoot == nil,
		bus:     systemd.Available(),
		unified: unified,
	}
}

// fix is the line to type that lifts the lack of a control group.
func fix(s surroundings) string {
	switch {
	case s.systemd && !s.unified:
		return "boot with systemd.unified_cgroup_hierarchy=1"
	case s.systemd && s.bus:
		return "systemd-run --user --scope -p Delegate=yes -- demesne run …"
	case s.systemd && !s.root:
		return "sudo loginctl enable-linger $USER; export XDG_RUNTIME_DIR=/run/user/$(id -u)"
	case !s.root:
		return "sudo demesne run …"
	}
	return "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
}

// thread is an OS thread with a cgroup namespace of its own. The kernel looks from
// a namespace's root when a process is moved (mount option nsdelegate refuses what
// is not below it), and the runner's own root is where it was before it got a
// delegated group. nil runs on the caller's thread.
type thread chan func()

// newThread starts one, in the namespace rooted at the group the runner is in now.
// Where that is not allowed the thread stays in the runner's namespace.
func newThread() thread {
	t := make(thread)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread dies with the goroutine
		_ = unix.Unshare(unix.CLONE_NEWCGROUP)
		for f := range t {
			f()
		}
	}()
	return t
}

func (t thread) do(f func() error) error {
	if t == nil {
		return f()
	}
	var wg sync.WaitGroup
	var err error
	wg.Add(1)
	t <- func() { defer wg.Done(); err = f() }
	wg.Wait()
	return err
}

func (t thread) end() {
	if t != nil {
		close(t)
	}
}
