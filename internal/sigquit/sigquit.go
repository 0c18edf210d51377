// Package sigquit makes Ctrl-\ end a demesne program as it ends any other: at once and silently.
//
// The Go runtime's handler for SIGQUIT lists all goroutines, which does not help a user who wants to quit.
// [ByDefault] restores the kernel's default with one system call. signal.Notify would start a goroutine and a
// thread, and most commands end sooner than that. Call it from main, before anything else starts.
package sigquit

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Action is the disposition of SIGQUIT, the kernel's struct sigaction. The zero value is the default.
type Action [4]uint64

// maskSize is the size of the kernel's sigset_t, in bytes.
const maskSize = 8

// ByDefault sets the default disposition and returns the previous one, or nil if that failed.
func ByDefault() *Action {
	var before, byDefault Action
	if !swap(&byDefault, &before) {
		return nil
	}
	return &before
}

// Restore sets the disposition a again; it does nothing if a is nil. A program that calls signal.Notify for SIGQUIT
// must also call Restore, as the runtime assumes that its own handler is still installed. Restore may be called
// again.
func (a *Action) Restore() {
	if a != nil {
		swap(a, nil)
	}
}

func swap(to, before *Action) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGQUIT), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(before)), maskSize, 0, 0)
	return errno == 0
}
