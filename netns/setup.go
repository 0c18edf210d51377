package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sysctls of a new namespace, below /proc/sys/net/ipv4. The first value that the
// kernel takes stays: group 65535 need not exist in the user namespace.
var sysctls = []struct {
	name   string
	values []string
}{
	{"ip_unprivileged_port_start", []string{"0"}},
	{"ping_group_range", []string{"0 65535", "0 0"}},
	{"ip_forward", []string{"0"}},
}

// setSysctls writes them for the calling thread's namespace, which is the one that
// /proc/sys/net shows it. None is needed for isolation, and /proc/sys may be
// read-only, so failures are left alone.
func setSysctls() {
	for _, s := range sysctls {
		writeFirst("/proc/sys/net/ipv4/"+s.name, s.values)
	}
}

func writeFirst(path string, values []string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, v := range values {
		if _, err := unix.Write(fd, []byte(v)); err == nil {
			return
		}
	}
}

// mountSysfs makes a sysfs mount of the calling thread's namespace that is attached
// nowhere.
func mountSysfs() (*os.File, error) {
	ctx, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen sysfs: %w", err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return nil, fmt.Errorf("create sysfs: %w", err)
	}
	const attrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return nil, fmt.Errorf("mount sysfs: %w", err)
	}
	return os.NewFile(uintptr(fd), "sysfs"), nil
}
