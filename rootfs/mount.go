package rootfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	attrBind   = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrBindRO = attrBind | unix.MOUNT_ATTR_RDONLY
)

// An option of a file system; one without a value is a flag.
type option struct{ key, value string }

// newFS makes a file system and returns its detached mount. Errors name the step that failed, which distinguishes
// an old kernel from a container that refuses.
func newFS(kind string, attrs int, options ...option) (fd int, err error) {
	ctx, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount %s: fsopen: %w", kind, err)
	}
	defer unix.Close(ctx)
	for _, o := range options {
		if o.value == "" {
			err = unix.FsconfigSetFlag(ctx, o.key)
		} else {
			err = unix.FsconfigSetString(ctx, o.key, o.value)
		}
		if err != nil {
			return -1, fmt.Errorf("mount %s: set %s=%s: %w", kind, o.key, o.value, err)
		}
	}
	return finishFS(kind, ctx, attrs)
}

// finishFS creates the configured file system and returns its detached mount.
func finishFS(kind string, ctx, attrs int) (int, error) {
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, fmt.Errorf("mount %s: create: %w", kind, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("mount %s: fsmount: %w", kind, err)
	}
	return fd, nil
}

// clone makes a detached copy of the mount at path, with all mounts below it, and adds attributes to it. A path of
// "" means dirfd itself. A link as the last component is followed.
//
// The copy is recursive even for a single file: the kernel refuses to copy a mount without its locked children.
// Attributes are only ever added, so locked ones do not change.
func clone(dirfd int, path string, attrs uint64) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dirfd, path, flags)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	if err := setAttr(fd, attrs, true); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setAttr adds attributes to the mount fd, and makes it private, so that later mounts of the host do not appear
// inside.
func setAttr(fd int, attrs uint64, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(fd, "", flags, &unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE})
	if err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

// move attaches the detached mount from at path below the directory to.
func move(from, to int, path string) error {
	if err := unix.MoveMount(from, "", to, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}
