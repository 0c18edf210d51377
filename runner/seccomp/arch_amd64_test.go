package seccomp

import (
	"testing"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// x32Bit is __X32_SYSCALL_BIT.
const x32Bit = 0x40000000

// TestFilterAMD64 covers calls that only amd64 has, and x32.
func TestFilterAMD64(t *testing.T) {
	noSUID, fake := pid1api.SeccompOptions{NoSUID: true}, pid1api.SeccompOptions{FakeRoot: true}
	for _, tt := range []struct {
		name string
		o    pid1api.SeccompOptions
		call call
		want action
	}{
		{"x32 read", pid1api.SeccompOptions{}, sys(x32Bit | unix.SYS_READ), enosys},
		{"x32 unshare", pid1api.SeccompOptions{Nesting: true}, sys(x32Bit | unix.SYS_UNSHARE), enosys},
		{"iopl", pid1api.SeccompOptions{}, sys(unix.SYS_IOPL), eperm},
		{"chmod suid", noSUID, sys(unix.SYS_CHMOD, 0, 0o4755), eperm},
		{"chmod", noSUID, sys(unix.SYS_CHMOD, 0, 0o755), allow},
		{"creat sgid", noSUID, sys(unix.SYS_CREAT, 0, 0o2755), eperm},
		{"open suid", noSUID, sys(unix.SYS_OPEN, 0, unix.O_CREAT, 0o4755), eperm},
		{"open", noSUID, sys(unix.SYS_OPEN, 0, unix.O_RDONLY, 0o4755), allow},
		{"mkdir suid", noSUID, sys(unix.SYS_MKDIR, 0, 0o4755), eperm},
		{"lchown", fake, sys(unix.SYS_LCHOWN), faked},
		{"mknod char", fake, sys(unix.SYS_MKNOD, 0, unix.S_IFCHR), faked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := answer(t, tt.o, auditArch, tt.call); got != tt.want {
				t.Errorf("answer %#x, want %#x", got, tt.want)
			}
		})
	}
}
