package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// scopesABI is the first Landlock ABI with scopes for signals and abstract sockets.
const scopesABI = 6

// probeLandlock forbids a thread to list directories and then lists one.
func probeLandlock(_ context.Context, e *Env) []answer {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return []answer{e.judge(runner.Missing, "", diagnose.Landlock, os.NewSyscallError("landlock_create_ruleset", errno))}
	}
	if err := procself.OnDisposableThread(restrictByLandlock); err != nil {
		return []answer{e.judge(runner.Missing, "", diagnose.Landlock, err)}
	}
	detail := fmt.Sprintf("ABI %d", abi)
	if abi < scopesABI {
		return []answer{{
			runner.Degraded, detail,
			"before Linux 6.12 only namespaces restrict signals and abstract sockets", "",
		}}
	}
	return []answer{held(detail)}
}

func restrictByLandlock() error {
	list := func() error {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	if err := list(); err != nil {
		return fmt.Errorf("list /: %w", err)
	}
	// The first version of struct landlock_ruleset_attr, which every kernel accepts.
	attr := struct{ fs uint64 }{unix.LANDLOCK_ACCESS_FS_READ_DIR}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(set))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("no_new_privs", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	if err := list(); err != unix.EACCES {
		return fmt.Errorf("list / under Landlock: not refused: %w", errors.Join(unix.ENOTSUP, err))
	}
	return nil
}

// probeSeccomp forbids a thread getpgid(2) and then calls it.
func probeSeccomp(_ context.Context, e *Env) []answer {
	if err := procself.OnDisposableThread(restrictBySeccomp); err != nil {
		return []answer{e.judge(runner.Missing, "", diagnose.Seccomp, err)}
	}
	return []answer{held("a filter was loaded and enforced")}
}

func restrictBySeccomp() error {
	const nr = 0 // offset in struct seccomp_data
	const answer = unix.ENOANO
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPGID, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(answer)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("no_new_privs", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	if _, err := unix.Getpgid(0); err != answer {
		return fmt.Errorf("call under the filter: not refused: %w", errors.Join(unix.ENOTSUP, err))
	}
	return nil
}

// probePaths says how paths of callers and sandboxes are resolved. Both ways have the same guarantees.
func probePaths(context.Context, *Env) []answer {
	if err := fsutil.HasOpenat2(); err != nil {
		return []answer{held("walked by openat, because openat2 fails: " + err.Error())}
	}
	return []answer{held("openat2")}
}
