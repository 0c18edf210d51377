package rootfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Open has what is mounted in the tree from now on appear in a sandbox that starts from it, until
// Detach: the root becomes a shared mount, of which a mount namespace of another user namespace gets a
// slave. The attributes of what reaches it so are locked there, as those of what it started with are
// (mount_namespaces(7)). It could be unmounted, by whoever may do such a thing; that bares a directory
// which is the sandbox's own.
func (t *Tree) Open() error {
	t.open = true
	return t.propagate(unix.MS_SHARED)
}

// Complete mounts /out and, if there is one, /workspace in a tree that is open, over the directories of a
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

// propagate sets the propagation of the mount at the tree's root.
func (t *Tree) propagate(to uint64) error {
	err := unix.MountSetattr(unix.AT_FDCWD, t.Root, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Propagation: to})
	if err != nil {
		return fmt.Errorf("set propagation of %q: %w", t.Root, err)
	}
	return nil
}
