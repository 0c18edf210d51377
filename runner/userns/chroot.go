package userns

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ChrootLacks names what this process lacks to make trees of images where nothing can be mounted: uid 0, which owns the
// copies of their files, the capabilities for chroot(2) and for the devices in the tree, and the machine's user namespace:
// root of another one makes no devices. It is empty if nothing is missing.
func ChrootLacks() (lacks []string) {
	if os.Geteuid() != 0 {
		lacks = append(lacks, "uid 0")
	}
	var sets [2]unix.CapUserData // none is effective if capget fails
	unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0])
	if sets[0].Effective&(1<<unix.CAP_SYS_CHROOT) == 0 {
		lacks = append(lacks, "CAP_SYS_CHROOT")
	}
	if sets[0].Effective&(1<<unix.CAP_MKNOD) == 0 {
		lacks = append(lacks, "CAP_MKNOD")
	}
	if ids, err := os.ReadFile("/proc/self/uid_map"); err == nil && !strings.Contains(string(ids), "4294967295") {
		lacks = append(lacks, "the machine's user namespace")
	}
	return lacks
}
