package rootfs

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// systemDirs are the host's programs and libraries. Where the host has a link (/bin → usr/bin) so
// has the tree; a directory is bound read-only.
var systemDirs = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// plainDirs are the sandbox's own, on the tmpfs. Parents come first.
var plainDirs = []struct {
	name string
	mode uint32
}{
	{"dev", 0o755}, // covered by Dir/dev
	{"dev/shm", 0o1777},
	{"etc", 0o755},
	{"home", 0o755},
	{"in", 0o755},
	{"media", 0o755},
	{"mnt", 0o755},
	{"opt", 0o755}, // the host's may hold secrets
	{"proc", 0o555},
	{"root", 0o700},
	{"run", 0o755},
	{"run/lock", 0o1777},
	{"srv", 0o755},
	{"tmp", 0o1777},
	{"var", 0o755},
	{"var/cache", 0o755},
	{"var/lib", 0o755},
	{"var/log", 0o755},
	{"var/tmp", 0o1777},
}

var plainLinks = []struct{ name, target string }{
	{"var/lock", "/run/lock"},
	{"var/run", "/run"},
}

// planRoot makes the tmpfs for / and plans everything below it but what is inside /in.
func planRoot(l Layout) (*plan, error) {
	p, err := newPlan("/", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV,
		option{"size", atLeastZero(l.Size)}, option{"nr_inodes", atLeastZero(l.Inodes)})
	if err != nil {
		return nil, err
	}
	for _, d := range plainDirs {
		if err := p.mkdir(d.name, d.mode); err != nil {
			return p, err
		}
	}
	for _, k := range plainLinks {
		if err := p.symlink(k.target, k.name); err != nil {
			return p, err
		}
	}
	for _, name := range systemDirs {
		if err := p.system(name); err != nil {
			return p, err
		}
	}
	if err := p.etc(l); err != nil {
		return p, err
	}
	if err := p.home(l.User); err != nil {
		return p, err
	}
	return p, p.sources(l)
}

// atLeastZero formats a limit; tmpfs takes 0 for none.
func atLeastZero(n int64) string { return strconv.FormatInt(max(n, 0), 10) }

// system adds one of the system directories as the host has it. A link is kept when it leads
// to another of them; /usr itself is always a directory inside.
func (p *plan) system(name string) error {
	if name != "usr" {
		target, err := readlink(unix.AT_FDCWD, "/"+name)
		if err == nil && inSystem("/", target) {
			return p.symlink(target, name)
		}
	}
	return p.bind("/"+name, name, attrBindRO)
}

// home makes the user's home, unless the user is root, who has /root.
func (p *plan) home(u User) error {
	if u.UID == 0 {
		return nil
	}
	if err := p.mkdir("home/"+userName, 0o755); err != nil {
		return err
	}
	return p.own("home/"+userName, u)
}

// sources plans /sys, /out and /workspace.
func (p *plan) sources(l Layout) error {
	if err := p.sysfs(l.Sysfs); err != nil {
		return err
	}
	if err := p.writable("out", l.Out, l.User); err != nil {
		return err
	}
	return p.writable("workspace", l.Workspace, l.User)
}

func (p *plan) sysfs(mount *os.File) error {
	if mount == nil {
		return p.mkdir("sys", 0o555)
	}
	s := Source{Mount: mount}
	fd, _, err := s.open(attrBindRO | unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("bind /sys: %w", err)
	}
	return p.mount(fd, "sys", false)
}

// writable plans a directory the sandbox may write to: bound, or one on the tmpfs.
func (p *plan) writable(name string, s Source, u User) error {
	if s.zero() {
		if err := p.mkdir(name, 0o755); err != nil {
			return err
		}
		return p.own(name, u)
	}
	fd, kind, err := s.open(attrBind)
	if err != nil {
		return fmt.Errorf("bind /%s: %w", name, err)
	}
	if err := p.mount(fd, name, s.Mount == nil); err != nil {
		return err
	}
	if kind != unix.S_IFDIR {
		return fmt.Errorf("bind /%s: source %q: %w", name, s.name(), unix.ENOTDIR)
	}
	return nil
}

// mountInputs covers /in, once / is attached, with a mount of that same directory, binds the
// inputs below it and makes it read-only: no second tmpfs is needed for that.
func (p *plan) mountInputs(inputs []Bind) error {
	fd, err := clone(p.fd, "in", attrBind)
	if err != nil {
		return fmt.Errorf("mount /in: %w", err)
	}
	in := &plan{dir: dir{fd, "/in/"}}
	defer in.close()
	for _, b := range inputs {
		if !plainName(b.Name) {
			return fmt.Errorf("bind input %q: not a plain file name", b.Name)
		}
		fd, _, err := b.Source.open(attrBindRO)
		if err != nil {
			return fmt.Errorf("bind input %q: %w", b.Name, err)
		}
		if err := in.mount(fd, b.Name, b.Source.Mount == nil); err != nil {
			return err
		}
	}
	if err := in.attach(p.fd, "in"); err != nil {
		return err
	}
	return in.seal()
}
