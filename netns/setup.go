package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sysctl of a namespace, below /proc/sys/net. The first value that the kernel takes
// stays.
type sysctl struct {
	name   string
	values []string
}

// Those of any sandbox: group 65535 need not exist in the user namespace. Each one costs a tenth
// of what a namespace does.
var sandboxSysctls = []sysctl{
	{"ipv4/ip_unprivileged_port_start", []string{"0"}},
	{"ipv4/ping_group_range", []string{"0 65535", "0 0"}},
	{"ipv4/ip_forward", []string{"0"}},
}

// Those of a sandbox besides that has a link.
var linkSysctls = []sysctl{
	{"ipv6/conf/default/accept_ra", []string{"0"}}, // nobody there is a router
}

// Those of a gateway: nothing is forwarded, and every refusal is told, so that clients
// of QUIC and the like turn to TCP at once.
var gatewaySysctls = []sysctl{
	{"ipv4/ip_forward", []string{"0"}},
	{"ipv6/conf/all/forwarding", []string{"0"}},
	{"ipv6/conf/default/accept_ra", []string{"0"}},
	{"ipv4/icmp_ratemask", []string{"0"}}, // no type is limited
	{"ipv6/icmp/ratemask", []string{"255"}},
}

// writeSysctls writes them for the calling thread's namespace, which is the one that
// /proc/sys/net shows it. None is needed for isolation, and /proc/sys may be
// read-only, so failures are left alone.
func writeSysctls(list []sysctl) {
	for _, s := range list {
		writeFirst("/proc/sys/net/"+s.name, s.values)
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
