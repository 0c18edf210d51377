package userns

import (
	"os"

	"golang.org/x/sys/unix"
)

// ChrootLacks names what this process lacks to make trees of images where nothing can be mounted: uid 0, which owns the
// copies of their files, and the capabilities for chroot(2) and for the devices in the tree. It is empty if nothing is
// missing.
func ChrootLacks() (lacks []string) {
	if os.Geteuid() != 0 {
		lacks = append(lacks, "uid 0")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil {
		return append(lacks, "capabilities")
	}
	for _, c := range []struct {
		number int
		name   string
	}{{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT"}, {unix.CAP_MKNOD, "CAP_MKNOD"}} {
		if sets[0].Effective&(1<<c.number) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	return lacks
}
