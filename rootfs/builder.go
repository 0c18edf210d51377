package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A plan is a detached file system under construction, and the mounts to be moved into it. The mounts are moved
// after it is attached: before Linux 6.15 a detached mount cannot be moved below another detached one.
type plan struct {
	dir   // the root of the file system
	moves []planned
	held  []int  // descriptors to close with the plan
	shm   *place // the directory that becomes /dev/shm, on the file system of /; nil: none
}

// A place is a name in an open directory.
type place struct {
	fd   int
	name string
}

// A planned mount is a detached mount, its target, and the kind of file it covers there.
type planned struct {
	fd    int
	at    string
	kind  uint32 // S_IFDIR, or a kind that can be mounted over a file
	owned bool   // closed by the plan, not by the caller
}

// newPlan makes the tmpfs that errors call at. Options are as in tmpfs(5); attrs are attributes of the mount.
func newPlan(at string, attrs int, options ...option) (*plan, error) {
	fd, err := newFS("tmpfs", attrs, append(options, option{"mode", "0755"})...)
	if err != nil {
		return nil, err
	}
	return &plan{dir: dir{fd: fd, at: at}}, nil
}

// mount plans to move a detached mount, and makes the file or directory that it will cover.
func (p *plan) mount(m planned) error {
	p.moves = append(p.moves, m)
	if m.kind == unix.S_IFDIR {
		return p.mkdir(m.at, 0o755)
	}
	return p.write(m.at, nil)
}

// bind plans to mount a copy of the host's path. If the path is missing or unreadable, it will be missing inside
// too.
func (p *plan) bind(path, at string, kind uint32, attrs uint64) error {
	fd, err := clone(unix.AT_FDCWD, path, attrs)
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind %q: %w", path, err)
	}
	return p.mount(planned{fd, at, kind, true})
}

// source plans to mount a source, which must be of the kind want unless that is 0.
func (p *plan) source(s Source, at string, want uint32, attrs uint64) error {
	fd, kind, err := s.open(attrs)
	if err != nil {
		return fmt.Errorf("bind %s%s: %w", p.at, at, err)
	}
	if want != 0 && kind != want {
		if s.Mount == nil {
			unix.Close(fd)
		}
		return fmt.Errorf("bind %s%s: source %q: %w", p.at, at, s.name(), wrongKind[want])
	}
	return p.mount(planned{fd, at, kind, s.Mount == nil})
}

var wrongKind = map[uint32]error{
	unix.S_IFDIR: unix.ENOTDIR,
	unix.S_IFREG: errors.New("not a regular file"),
}

// attach mounts the file system at path below dirfd, and all planned mounts below it.
func (p *plan) attach(dirfd int, path string) error {
	if err := move(p.fd, dirfd, path); err != nil {
		return fmt.Errorf("mount %s: %w", p.at, err)
	}
	for _, m := range p.moves {
		if err := move(m.fd, p.fd, m.at); err != nil {
			return fmt.Errorf("mount %s%s: %w", p.at, m.at, err)
		}
	}
	return nil
}

// seal makes the tmpfs read-only, but not the mounts below it.
func (p *plan) seal() error {
	if err := setAttr(p.fd, unix.MOUNT_ATTR_RDONLY, false); err != nil {
		return fmt.Errorf("make %s read-only: %w", p.at, err)
	}
	return nil
}

func (p *plan) close() {
	if p == nil {
		return
	}
	for _, m := range p.moves {
		if m.owned {
			unix.Close(m.fd)
		}
	}
	for _, fd := range p.held {
		unix.Close(fd)
	}
	p.moves, p.held = nil, nil
	unix.Close(p.fd)
}
