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
)

// Host is the set of limit mechanisms available on this machine, found once by [Open].
type Host struct {
	hierarchies []*hierarchy
	attempts    []attempt
	pressure    pressure
	ledger      ledger
	exempts     bool // the kernel's uid 0 is mapped: see exemptsRoot
}

// hierarchy is a group below which the runner may make a group for each sandbox.
type hierarchy struct {
	version     int // cgroup version, 1 or 2
	dir         *cgroup.Dir
	controllers []string
	thread      thread // version 2: the thread that must move processes
}

// attempt is the result of trying one mechanism.
type attempt struct {
	name string
	err  error // nil if the mechanism is used
}

// mechanism is one way to obtain a control group.
type mechanism struct {
	name string
	open func(key string, mine *discovery) ([]*hierarchy, error)
}

// discovery opens the runner's own version 2 group on first use, because opening it mounts the hierarchy.
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

// mechanisms lists the mechanisms in the order they are tried; the first that succeeds is used.
var mechanisms = []mechanism{
	{"cgroups prepared by root", prepared},
	{"the runner's own delegated cgroup2", func(_ string, mine *discovery) ([]*hierarchy, error) { return own("memory", mine) }},
	{"a cgroup2 scope of the user's systemd", scope},
	{"part of the runner's own cgroup2", func(_ string, mine *discovery) ([]*hierarchy, error) { return own("", mine) }},
}

// Open finds the mechanism for the runner called key. It never fails: without a control group, rlimits and the
// watchdog remain. It opens the directories it will need, so the caller may mount over /sys/fs/cgroup
// afterwards.
//
// prepared means that real root made groups for key. A search for such groups costs one mount for each
// hierarchy, so Open searches only if prepared is set.
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
	h := &Host{pressure: pressure{used: map[*Group]share{}}, exempts: exemptsRoot()}
	mine := &discovery{}
	defer mine.close()
	for _, m := range table {
		hierarchies, err := m.open(key, mine)
		if err == nil && len(hierarchies) == 0 {
			err = errors.New("it has no memory, pids or cpu controller")
		}
		h.attempts = append(h.attempts, attempt{m.name, err})
		if err == nil {
			h.hierarchies = hierarchies
			break
		}
	}
	return h
}

// hierarchy returns the hierarchy that has the controller, or nil.
func (h *Host) hierarchy(controller string) *hierarchy {
	for _, p := range h.hierarchies {
		for _, c := range p.controllers {
			if c == controller {
				return p
			}
		}
	}
	return nil
}

// why returns a one-line reason why no group has the controller.
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

// Probe returns the line of `demesne check` about control groups.
func (h *Host) Probe() runner.Probe {
	p := runner.Probe{Name: "cgroup", Status: runner.Held}
	var missing []string
	for _, c := range cgroup.Controllers {
		if h.hierarchy(c) == nil {
			missing = append(missing, c)
		}
	}
	switch {
	case len(h.hierarchies) == 0:
		p.Status, p.Detail = runner.Missing, "fallback: rlimits and a watchdog"
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

// surroundings are the facts that decide which command gives a control group.
type surroundings struct {
	root    bool // real root, outside any user namespace
	systemd bool // systemd booted this machine
	bus     bool // the user's systemd has a bus
	unified bool // cgroup version 2 is mounted at /sys/fs/cgroup
}

func lookAround() surroundings {
	uid, err := hostUID()
	_, noBoot := os.Stat("/run/systemd/system")
	var fs unix.Statfs_t
	unified := unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
	return surroundings{
		root:    err == nil && uid == 0,
		systemd: noBoot == nil,
		bus:     hasBus(),
		unified: unified,
	}
}

// fix returns the command line that makes a control group available.
func fix(s surroundings) string {
	switch {
	case s.systemd && !s.unified:
		return `echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX systemd.unified_cgroup_hierarchy=1"' | sudo tee /etc/default/grub.d/cgroup2.cfg && sudo update-grub && sudo reboot`
	case s.systemd && s.bus:
		return "systemd-run --user --scope -p Delegate=yes -- demesne run …"
	case s.systemd && !s.root:
		return "sudo loginctl enable-linger $USER; export XDG_RUNTIME_DIR=/run/user/$(id -u)"
	case !s.root:
		return "sudo demesne run …"
	}
	return "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
}

// thread is an OS thread with its own cgroup namespace. The kernel checks a move of a process against the root
// of the mover's cgroup namespace: mount option nsdelegate refuses groups outside it. The runner's own
// namespace has its root where the runner was before it got a delegated group. A nil thread runs functions on
// the caller's thread.
type thread chan func()

// newThread starts a thread whose cgroup namespace is rooted at the runner's current group. If unshare is
// refused, the thread stays in the runner's namespace.
func newThread() thread {
	t := make(thread)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
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
