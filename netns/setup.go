package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sysctl is a setting of a namespace, below /proc/sys/net. The first value that the kernel accepts is used.
type sysctl struct {
	name   string
	values []string
}

// sandboxSysctls apply to every sandbox. Group 65535 need not exist in the user namespace, hence the second value.
// Each setting costs a tenth of the time that a namespace takes.
var sandboxSysctls = []sysctl{
	{"ipv4/ip_unprivileged_port_start", []string{"0"}},
	{"ipv4/ping_group_range", []string{"0 65535", "0 0"}},
	{"ipv4/ip_forward", []string{"0"}},
}

// linkSysctls apply in addition to a sandbox that has a link.
var linkSysctls = []sysctl{
	{"ipv6/conf/default/accept_ra", []string{"0"}}, // the link has no router
}

// gatewaySysctls apply to a gateway. It forwards nothing and reports every refusal, so that clients of QUIC and the
// like fall back to TCP at once.
var gatewaySysctls = []sysctl{
	{"ipv4/ip_forward", []string{"0"}},
	{"ipv6/conf/all/forwarding", []string{"0"}},
	{"ipv6/conf/default/accept_ra", []string{"0"}},
	{"ipv4/icmp_ratemask", []string{"0"}}, // no ICMP type is rate-limited
	{"ipv6/icmp/ratemask", []string{"255"}},
}

// writeSysctls writes the settings for the calling thread's namespace, which /proc/sys/net shows it. Isolation
// depends on none of them, and /proc/sys may be read-only, so writeSysctls ignores failures.
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

// mountSysfs makes a detached sysfs mount of the calling thread's namespace.
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
