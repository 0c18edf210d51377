package rootfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Tmpfs is an empty directory in memory that every user of the sandbox can write to, like /tmp. Mount points in it
// may be made.
type Tmpfs struct {
	Target       string // absolute and clean, as the Target of a Mount
	Size, Inodes int64  // ≤ 0: the kernel's default
}

// mountTmpfs mounts the entries of l.Tmpfs that lie below a mount of l, or with above unset the others. It adds them to
// m.own.
func (m *mounter) mountTmpfs(l Layout, above bool) error {
	for _, f := range l.Tmpfs {
		below := slices.ContainsFunc(l.Mounts, func(b Mount) bool { return strings.HasPrefix(f.Target, b.Target+"/") })
		if below != above {
			continue
		}
		if err := m.mountOneTmpfs(f); err != nil {
			return fmt.Errorf("mount tmpfs %q: %w", f.Target, err)
		}
	}
	return nil
}

func (m *mounter) mountOneTmpfs(f Tmpfs) error {
	options := []option{{"mode", "1777"}}
	if f.Size > 0 {
		options = append(options, option{"size", strconv.FormatInt(f.Size, 10)})
	}
	if f.Inodes > 0 {
		options = append(options, option{"nr_inodes", strconv.FormatInt(f.Inodes, 10)})
	}
	fd, err := newFS("tmpfs", attrBind, options...)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at, err := m.place(f.Target, unix.S_IFDIR, false)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.MoveMount(fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	id, err := mountID(fd)
	m.own = append(m.own, id)
	return err
}
