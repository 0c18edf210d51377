// Package quit has Ctrl-\ end a program of ours as it ends any other: at once, with nothing said.
//
// The Go runtime has a handler for SIGQUIT that lists all goroutines, which helps nobody who only wants to leave. [ByDefault] puts the
// kernel's default in its place, with one system call: signal.Notify would start a goroutine and a thread for it, and most commands
// are over before. It is for main, before anything else is started.
package sigquit

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Action is what SIGQUIT does, the kernel's struct sigaction. The zero value is the default.
type Action [4]uint64

// maskSize is that of the kernel's sigset_t, in bytes.
const maskSize = 8

// ByDefault sets the default, and returns what was there.
func ByDefault() *Action {
	var before, byDefault Action
	if !swap(&byDefault, &before) {
		return nil
	}
	return &before
}

// Restore sets a again; nil: nothing is to be done. Who has called signal.Notify for SIGQUIT needs that: the runtime takes its own
// handler to be there still. It may be called again.
func (a *Action) Restore() {
	if a != nil {
		swap(a, nil)
	}
}

func swap(to, before *Action) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGQUIT), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(before)), maskSize, 0, 0)
	return errno == 0
}
