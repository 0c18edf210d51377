package doctor

import (
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"demesne/runner/doctor/diagnose"
)

// TestForbiddenBySeccomp refuses a user namespace with a filter like Docker's default, and expects that
// diagnosis.
func TestForbiddenBySeccomp(t *testing.T) {
	asRootAndUser(t, start{}, func(t *testing.T) {
		forbidUserns(t)
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		err := cmd.Run()
		why, fix := diagnose.Userns(err, diagnose.Read("/x/demesne-runner"))
		if err == nil || !strings.Contains(why, "a seccomp filter forbids") || !strings.Contains(fix, "seccomp=unconfined") {
			t.Errorf("%v: %q, %q", err, why, fix)
		}
		want(t, byName(t, Env{Minimal: true, ModeWhy: why, ModeFix: fix}), "held", "landlock", "seccomp")
	})
}

// forbidUserns makes clone(2) with CLONE_NEWUSER fail with EPERM, for the whole process.
func forbidUserns(t *testing.T) {
	t.Helper()
	const nr, arg0 = 0, 16 // offsets in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arg0},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // no_new_privs is this thread's until the filter carries it to the others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		t.Fatal(errno)
	}
}
