package procself

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// SIGQUITAction is the disposition of SIGQUIT, the kernel's struct sigaction. The zero value is the default.
type SIGQUITAction [4]uint64

// maskSize is the size of the kernel's sigset_t, in bytes.
const maskSize = 8

// DefaultSIGQUIT sets the default disposition of SIGQUIT and returns the previous one, or nil if that failed. Ctrl-\
// then ends a demesne program as it ends any other: at once and silently.
//
// The Go runtime's handler for SIGQUIT lists all goroutines, which does not help a user who wants to quit. The
// kernel's default takes one system call. signal.Notify would start a goroutine and a thread, and most commands end
// sooner than that. Call DefaultSIGQUIT from main, before anything else starts.
func DefaultSIGQUIT() *SIGQUITAction {
	var before, byDefault SIGQUITAction
	if !byDefault.swap(&before) {
		return nil
	}
	return &before
}

// Restore sets the disposition a again; it does nothing if a is nil. A program that calls signal.Notify for SIGQUIT
// must also call Restore, as the runtime assumes that its own handler is still installed. Restore may be called
// again.
func (a *SIGQUITAction) Restore() {
	if a != nil {
		a.swap(nil)
	}
}

func (a *SIGQUITAction) swap(before *SIGQUITAction) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGQUIT), uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(before)), maskSize, 0, 0)
	return errno == 0
}
