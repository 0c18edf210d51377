package rootfs

import (
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// systemDirs lists the directories of the host's programs and libraries. A link of the host (/bin → usr/bin)
// becomes the same link in the tree; a directory is bound read-only.
var systemDirs = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// plainDirs lists the sandbox's own directories on the tmpfs, other than /tmp. Parents come first.
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

// HostFiles makes the files of the host's tree that a sandbox of this layout starts with, without the mounts over
// them.
func HostFiles(l Layout) (*os.File, error) {
	p, err := planHost(l)
	defer p.close()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(p.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), "/"), err
}

// planHost makes the tmpfs for / with all its files.
func planHost(l Layout) (*plan, error) {
	p, err := newPlan("/", attrBind, sizes(l)...)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(Layout) error{p.plain, p.system, p.etc, p.home} {
		if err := step(l); err != nil {
			return p, err
		}
	}
	return p, nil
}

// mountHost attaches the host's tree with everything below it, or an overlay of it.
func (t *Tree) mountHost(l Layout) (*plan, error) {
	p, err := planHost(l)
	if err != nil {
		return p, err
	}
	p.shm = &place{p.fd, "dev/shm"}
	if t.CertFile, err = p.hostTrust(l.Trust); err != nil {
		return p, err
	}
	t.Upper = UpperTmpfs
	if l.Kept != nil {
		over, err := t.keptHost(l, p)
		if err == nil {
			p.close()
			return over, t.finish(over, l)
		}
		over.close()
		if t.Upper == UpperKept {
			return p, err
		}
		t.KeptWhy = err
	}
	return p, t.finish(p, l)
}

// finish adds the parts that every tree has, attaches the plan, and mounts the inputs and l.Mounts.
func (t *Tree) finish(p *plan, l Layout) error {
	if err := p.sources(l); err != nil {
		return err
	}
	if err := p.attach(unix.AT_FDCWD, t.Root); err != nil {
		return err
	}
	in, err := p.mountInputs(l)
	defer in.close()
	if err != nil {
		return err
	}
	if err := t.mountAll(l, p.umask, p.fd, in.fd); err != nil {
		return err
	}
	return in.seal()
}

// sizes returns the options of a tmpfs that the sandbox may fill.
func sizes(l Layout) []option {
	return []option{{"size", atLeastZero(l.Size)}, {"nr_inodes", atLeastZero(l.Inodes)}}
}

// plain makes the sandbox's own directories.
func (p *plan) plain(Layout) error {
	if err := p.learnUmask("tmp"); err != nil {
		return err
	}
	for _, d := range plainDirs {
		if err := p.mkdir(d.name, d.mode); err != nil {
			return err
		}
	}
	for _, k := range plainLinks {
		if err := p.symlink(k.target, k.name); err != nil {
			return err
		}
	}
	return nil
}

// atLeastZero formats a limit; tmpfs takes 0 for no limit.
func atLeastZero(n int64) string { return strconv.FormatInt(max(n, 0), 10) }

// system adds the system directories as the host has them. A link that leads to another system directory stays a
// link; /usr itself is always a directory inside.
func (p *plan) system(Layout) error {
	for _, name := range systemDirs {
		target, err := fsutil.ReadlinkAt(unix.AT_FDCWD, "/"+name)
		if err == nil && name != "usr" && inSystem("/", target) {
			err = p.symlink(target, name)
		} else {
			err = p.bind("/"+name, name, unix.S_IFDIR, attrBindRO)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// home makes the user's home, unless the user is root, whose home is /root.
func (p *plan) home(l Layout) error {
	if l.User.UID == 0 {
		return nil
	}
	if err := p.mkdir("home/"+userName, 0o755); err != nil {
		return err
	}
	return p.own("home/"+userName, l.User)
}

// aside returns the path, relative to /, of the directory in, out or workspace.
func (l Layout) aside(name string) string { return path.Join(l.Aside, name) }

// sources makes /sys and plans /out and /workspace.
func (p *plan) sources(l Layout) error {
	if err := p.mkdir("sys", 0o555); err != nil {
		return err
	}
	if err := p.writable(l.aside("out"), l.Out, l.User); err != nil {
		return err
	}
	return p.writable(l.aside("workspace"), l.Workspace, l.User)
}

// writable plans a directory the sandbox may write to: bound, or one on the tmpfs.
func (p *plan) writable(name string, s Source, u User) error {
	if s.zero() {
		if err := p.mkdir(name, 0o755); err != nil {
			return err
		}
		return p.own(name, u)
	}
	return p.source(s, name, unix.S_IFDIR, attrBind)
}

// mountInputs mounts the attached tree's /in directory over itself and binds the inputs below it. This needs no second
// tmpfs. The caller makes the result read-only.
func (p *plan) mountInputs(l Layout) (*plan, error) {
	fd, err := clone(p.fd, l.aside("in"), attrBind)
	if err != nil {
		return nil, fmt.Errorf("mount /in: %w", err)
	}
	in := &plan{dir: dir{fd: fd, at: "/in/", umask: p.umask}}
	taken := map[string]bool{}
	for _, b := range l.Inputs {
		if !plainName(b.Name) {
			return in, fmt.Errorf("bind /in: %q is not a plain file name", b.Name)
		}
		if taken[b.Name] { // two inputs of one name; an image's own file of that name is replaced instead
			return in, fmt.Errorf("make /in/%s: %w", b.Name, unix.EEXIST)
		}
		taken[b.Name] = true
		if err := in.source(b.Source, b.Name, 0, attrBindRO); err != nil {
			return in, err
		}
	}
	if err := in.attach(p.fd, l.aside("in")); err != nil {
		return in, err
	}
	return in, in.coverSpecial()
}
