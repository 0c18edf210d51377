package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_RISCV64
	tiocLinux = 0x541c // TIOCLINUX, not in x/sys
)

// reviewed are the calls of Linux 6.18, up to file_setattr. 258 and 259 ask about the processor and flush its instruction cache.
var reviewed = []span{{0, 243}, {258, 294}, {424, 469}}

// Calls that exist on this architecture but not on all. riscv64 is newer than the *at calls and lacks those they
// replaced.
var (
	archDenied []uint32
	archOpens  []at
	archModes  []at
	archMknods []at
	archChowns []uint32
	archServer = []uint32{unix.SYS_FSTATAT}
)
