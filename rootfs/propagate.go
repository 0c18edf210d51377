package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Show moves the trees to two directories that lie on a shared mount. They appear, whole, in each mount
// namespace that has a copy of that mount, and what is mounted in them from now on appears there too, until
// Detach. Where that namespace is another user namespace's, its copies are slaves; their attributes are
// locked, as those of what it started with are (mount_namespaces(7)), and so is all that is mounted below
// another mount of the same move. What was moved or added by itself could be unmounted, by whoever
// may do such a thing; that bares a directory with nothing in it. A sandbox that has made a tree its root
// keeps it.
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

// Complete mounts /out and, if there is one, /workspace in a tree that is shown, over the directories of a
// Layout without them.
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

// hide ends that what happens to the trees here happens to their copies.
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
