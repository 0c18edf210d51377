package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Show moves the trees to two directories on a shared mount. They appear, whole, in each mount namespace that has a
// copy of that mount, and so do later mounts in them, until Detach. If another user namespace owns that mount
// namespace, its copies are slaves with locked attributes, like the mounts it started with (mount_namespaces(7)).
// Mounts below another mount of the same move are locked too. A mount that was moved or added on its own can be
// unmounted inside by a process with that privilege, which uncovers an empty directory. A sandbox that has made a
// tree its root keeps it.
func (t *Tree) Show(root, dev string) error {
	t.shown = true
	for _, m := range []struct {
		from *string
		to   string
	}{{&t.Root, root}, {&t.Dev, dev}} {
		if err := unix.MoveMount(unix.AT_FDCWD, *m.from, unix.AT_FDCWD, m.to, 0); err != nil {
			return fmt.Errorf("move %q to %q: %w", *m.from, m.to, err)
		}
		unix.Rmdir(*m.from)
		*m.from = m.to
	}
	return nil
}

// Complete mounts /out and, if given, /workspace in a shown tree, over the directories that a Layout without them
// made.
func (t *Tree) Complete(out, workspace Source) error {
	root, err := t.openRoot()
	if err != nil {
		return err
	}
	p := &plan{dir: dir{fd: root, at: "/"}}
	defer p.close()
	for _, b := range []Bind{{"out", out}, {"workspace", workspace}} {
		if b.Source.zero() {
			continue
		}
		if err := p.put(b); err != nil {
			return fmt.Errorf("mount /%s: %w", b.Name, err)
		}
	}
	return nil
}

func (p *plan) put(b Bind) error {
	fd, kind, err := b.Source.open(attrBind)
	if err != nil {
		return err
	}
	if b.Source.Mount == nil {
		defer unix.Close(fd)
	}
	if kind != unix.S_IFDIR {
		return fmt.Errorf("source %q: %w", b.Source.name(), unix.ENOTDIR)
	}
	return move(fd, p.fd, b.Name)
}

func (t *Tree) openRoot() (int, error) {
	root, err := unix.Open(t.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open root: %w", err)
	}
	return root, nil
}

// hide stops the propagation of mount events from the trees here to their copies.
func (t *Tree) hide() error {
	var errs []error
	for _, at := range []string{t.Root, t.Dev} {
		err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_SYMLINK_NOFOLLOW|unix.AT_RECURSIVE, &unix.MountAttr{Propagation: unix.MS_PRIVATE})
		if err != nil {
			errs = append(errs, fmt.Errorf("make %q private: %w", at, err))
		}
	}
	return errors.Join(errs...)
}
