package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0      // none here
	tiocLinux = 0x541c // TIOCLINUX, not in x/sys
)

// What this architecture has besides the calls all of them have: nothing, it came
// after the *at calls.
var (
	archDenied []uint32
	archOpens  []at
	archModes  []at
	archMknods []at
	archChowns []uint32
	archServer = []uint32{unix.SYS_FSTATAT}
)
