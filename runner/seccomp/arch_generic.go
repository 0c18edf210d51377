//go:build arm64 || riscv64

package seccomp

import (
	"runtime"

	"golang.org/x/sys/unix"
)

const tiocLinux = 0x541c // TIOCLINUX, not in x/sys

var auditArch = map[string]uint32{"arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64}[runtime.GOARCH]

// reviewed are the calls of Linux 6.18, up to file_setattr. 258 and 259 exist on riscv64 only.
var reviewed = []span{{0, 243}, {258, 294}, {424, 469}}

// Calls that exist on this architecture but not on all. These are newer than the *at calls and lack those they replaced.
var (
	archDenied []uint32
	archOpens  []at
	archModes  []at
	archMknods []at
	archChowns []uint32
	archServer = []uint32{unix.SYS_FSTATAT}
)
