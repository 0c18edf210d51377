package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"demesne/runner/pid1/pid1api"
)

// Load applies prog irrevocably to every thread of this process and to all processes it starts. no_new_privs
// must be set. Load fails if a thread has its own filter that the caller's filters do not include.
func Load(prog []unix.SockFilter) error { return apply(prog, unix.SECCOMP_FILTER_FLAG_TSYNC) }

// NoSockets applies the filter of a sandbox without a network namespace to this process: it gets no socket.
func NoSockets() error {
	prog, err := Filter(pid1api.SeccompOptions{NoSocket: true})
	if err != nil {
		return err
	}
	return Load(prog)
}

// LoadThread applies prog to the calling thread alone and to the processes it starts.
func LoadThread(prog []unix.SockFilter) error { return apply(prog, 0) }

func apply(prog []unix.SockFilter, flags uintptr) error {
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if e != 0 {
		return fmt.Errorf("load seccomp filter: %w", e)
	}
	if tid != 0 {
		return fmt.Errorf("load seccomp filter: thread %d cannot load it", tid)
	}
	return nil
}
