package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Membership is one line of /proc/PID/cgroup: the process's group in one hierarchy. The line of version 2 names
// no controllers.
type Membership struct {
	Controllers []string
	Path        string // relative to the root of the reader's cgroup namespace
	V2          bool
}

// Has reports whether the hierarchy carries the version 1 controller.
func (m Membership) Has(controller string) bool { return slices.Contains(m.Controllers, controller) }

// parseMemberships parses /proc/PID/cgroup.
func parseMemberships(text string) []Membership {
	var out []Membership
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		m := Membership{Path: f[2], V2: f[0] == "0" && f[1] == ""}
		if f[1] != "" {
			m.Controllers = strings.Split(f[1], ",")
		}
		out = append(out, m)
	}
	return out
}

// Self returns the memberships of the process, as seen from the calling thread's cgroup namespace. It avoids
// /proc/thread-self: a thread that exits drops the dentries looked up in its directory. A waiting parent spins
// meanwhile, which costs 2.4 ms of a run.
func Self() ([]Membership, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read own cgroups: %w", err)
	}
	return parseMemberships(string(b)), nil
}

// Find returns the membership in the hierarchy of a version 1 controller, or of version 2 for "".
func Find(ms []Membership, controller string) (Membership, bool) {
	for _, m := range ms {
		if controller == "" && m.V2 || controller != "" && m.Has(controller) {
			return m, true
		}
	}
	return Membership{}, false
}

// Mount is a mounted hierarchy: a line of /proc/PID/mountinfo.
type Mount struct {
	Root        string // the group at Point, as seen from the reader's cgroup namespace
	Point       string
	Controllers []string // version 1
	V2          bool
}

// parseMounts returns the cgroup mounts in mountinfo, the latest first.
func parseMounts(text string) []Mount {
	var out []Mount
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		m := Mount{Root: unescape.Replace(l[3]), Point: unescape.Replace(l[4])}
		switch r[0] {
		case "cgroup2":
			m.V2 = true
		case "cgroup":
			m.Controllers = strings.Split(r[2], ",")
		default:
			continue
		}
		out = append(out, m)
	}
	slices.Reverse(out)
	return out
}

// Mounts returns the hierarchies mounted in the caller's mount namespace.
func Mounts() ([]Mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return parseMounts(string(b)), nil
}

// errNowhere means that no mount shows the group.
var errNowhere = errors.New("not mounted at a visible path")

// pathOf returns the directory of the group m among mounts. It fails when the mount's root lies above the
// reader's cgroup namespace ("/../.."), because the names in between are hidden.
func pathOf(m Membership, mounts []Mount) (string, error) {
	for _, mt := range mounts {
		if mt.V2 != m.V2 || !m.V2 && !overlap(mt.Controllers, m.Controllers) {
			continue
		}
		if strings.HasPrefix(mt.Root, "/..") || strings.HasPrefix(m.Path, "/..") {
			continue
		}
		rel, err := filepath.Rel(mt.Root, m.Path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(mt.Point, rel), nil
	}
	return "", fmt.Errorf("find cgroup %q: %w", m.Path, errNowhere)
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// mayMount means that no seccomp filter kills this process when it mounts. See [AllowMounts].
var mayMount atomic.Bool

// AllowMounts makes [Own] try a mount first. A runner calls it once it knows that no seccomp filter kills it for that, as
// systemd's units may. The programs of callers do not know, and open paths only.
func AllowMounts() { mayMount.Store(true) }

var errDeadly = errors.New("a seccomp filter may kill programs that mount")

// Own opens the group m of the caller. After [AllowMounts] it makes a detached mount of the hierarchy, whose root is the
// root of the caller's cgroup namespace; no path needs to lead there. Without the privilege to mount, Own uses the
// path.
func Own(m Membership) (*Dir, error) {
	root, err := detached(m)
	if err == nil {
		defer func() { go root.Close() }() // an unmount waits for the whole machine (synchronize_rcu)
		if !strings.HasPrefix(m.Path, "/..") {
			return root.Sub(m.Path)
		}
	}
	mounts, merr := Mounts()
	if merr != nil {
		return nil, errors.Join(err, merr)
	}
	path, perr := pathOf(m, mounts)
	if perr != nil {
		return nil, errors.Join(err, perr)
	}
	return Open(path)
}

// detached mounts the hierarchy of m without attaching it to the file system tree. The mount lives as long as a
// descriptor in it.
func detached(m Membership) (*Dir, error) {
	if !mayMount.Load() {
		return nil, errDeadly
	}
	kind := "cgroup"
	if m.V2 {
		kind = "cgroup2"
	}
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, c := range m.Controllers {
		if name, ok := strings.CutPrefix(c, "name="); ok {
			err = unix.FsconfigSetString(fs, "name", name)
		} else {
			err = unix.FsconfigSetFlag(fs, c)
		}
		if err != nil {
			return nil, fmt.Errorf("mount %s with %q: %w", kind, c, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("mount %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", kind, err)
	}
	return &Dir{f: os.NewFile(uintptr(fd), kind), name: kind}, nil
}
