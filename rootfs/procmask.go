package rootfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/procself"
)

// maskPaths and sysMaskPaths are hidden and readonlyPaths made read-only in every sandbox. They are the usual lists of
// the OCI runtime-spec and of Docker, plus pressure. Any user may write triggers to the files in pressure, which the
// kernel then watches and charges to no process (Documentation/accounting/psi.rst).
var (
	maskPaths = []string{
		"acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "timer_list",
		"timer_stats", "sched_debug", "scsi",
	}
	readonlyPaths = []string{"bus", "fs", "irq", "pressure", "sys", "sysrq-trigger"}
	sysMaskPaths  = []string{"firmware", "devices/virtual/powercap"}
)

// MaskProc covers the parts of /proc and /sys that a sandbox must not see or write: details of the machine's hardware
// and keys, and settings that apply to the whole machine. libcontainer would do it before PID 1 is executed; here it
// runs in parallel with PID 1's own start, which takes longer.
//
// It works in the mount namespace of a sandbox in which no command has run yet. It uses descriptors, so it follows
// no file that an image put at /proc. The system calls are open_tree(2), mount_setattr(2) and move_mount(2). It does
// not verify that the covers hold: PID 1 does (package pid1), and TestEscapeF14Proc tests it.
//
// In a sandbox with a masked /proc or /sys, a nested sandbox may not mount a new one (mount_too_revealing in the
// kernel). So a sandbox that allows nesting gets no mask.
func MaskProc(mounts *os.File) error {
	err := procself.OnDisposableThread(func() error {
		if err := enterMounts(mounts); err != nil {
			return err
		}
		proc, err := openMounted("/proc", unix.PROC_SUPER_MAGIC)
		if err != nil {
			return err
		}
		defer unix.Close(proc)
		for _, name := range maskPaths {
			if err := maskOne(proc, name, hidden); err != nil {
				return fmt.Errorf("hide %q: %w", name, err)
			}
		}
		for _, name := range readonlyPaths {
			if err := maskOne(proc, name, readOnly); err != nil {
				return fmt.Errorf("make %q read-only: %w", name, err)
			}
		}
		return maskSys()
	})
	if err != nil {
		return fmt.Errorf("mask /proc and /sys: %w", err)
	}
	return nil
}

// maskSys does nothing where no sysfs is mounted.
func maskSys() error {
	sys, err := openMounted("/sys", unix.SYSFS_MAGIC)
	if err == unix.ENOTDIR || err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(sys)
	for _, name := range sysMaskPaths {
		if err := maskOne(sys, name, hidden); err != nil {
			return fmt.Errorf("hide %q: %w", name, err)
		}
	}
	return nil
}

// enterMounts moves the calling thread, which must be disposable, into a mount namespace.
func enterMounts(ns *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("join mount namespace: %w", err)
	}
	return nil
}

// openMounted opens a directory, and fails unless it is of the file system, whatever the image has there.
func openMounted(dir string, magic int64) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var fs unix.Statfs_t
	if err = unix.Fstatfs(fd, &fs); err == nil && int64(fs.Type) != magic {
		err = unix.ENOTDIR
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// maskOne mounts the result of make over name; it ignores a missing name.
func maskOne(dir int, name string, make func(at int) (int, error)) error {
	at, err := fsutil.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	mount, err := make(at)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// readOnly makes a read-only copy of the mount at a descriptor, with all mounts below it.
func readOnly(at int) (int, error) {
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, err
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// hidden makes an empty mount: an empty directory for a directory, the sandbox's /dev/null for a file.
func hidden(at int) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return emptyDir()
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/null", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Rdev != unix.Mkdev(1, 3) {
		unix.Close(fd)
		return -1, fmt.Errorf("/dev/null is not the null device: %w", unix.ENODEV)
	}
	return fd, nil
}

func emptyDir() (int, error) {
	ctx, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	for _, o := range [][2]string{{"size", "4k"}, {"nr_inodes", "1"}, {"mode", "0555"}} {
		if err := unix.FsconfigSetString(ctx, o[0], o[1]); err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}
