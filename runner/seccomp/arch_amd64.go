package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	tiocLinux = 0x541c // TIOCLINUX, not in x/sys
)

// reviewed are the calls of Linux 6.18, up to file_setattr. The kernel's uprobe trampolines make 335 and 336 in
// programs that are traced from outside.
var reviewed = []span{{0, 336}, {424, 469}}

// Calls that exist on this architecture but not on all.
var (
	archDenied = []uint32{
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_SYSFS, unix.SYS_USTAT,
		unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
	}
	archOpens  = []at{{unix.SYS_OPEN, 1}}
	archModes  = []at{{unix.SYS_CHMOD, 1}, {unix.SYS_CREAT, 1}, {unix.SYS_MKDIR, 1}, {unix.SYS_MKNOD, 1}}
	archMknods = []at{{unix.SYS_MKNOD, 1}}
	archChowns = []uint32{unix.SYS_CHOWN, unix.SYS_LCHOWN}
	archServer = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_ARCH_PRCTL} // the latter for a new thread
)
