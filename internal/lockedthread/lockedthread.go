// Package lockedthread runs functions on threads that run nothing else afterwards.
package lockedthread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs f on a thread that ends afterwards, so f may leave it in any state: in other namespaces, restricted,
// without capabilities. It returns f's error.
func Run(f func() error) error {
	done := make(chan error, 1)
	go runAndEnd(f, done)
	return <-done
}

// runAndEnd never unlocks its thread: the runtime ends a locked thread when its goroutine returns. The process's
// first thread is the exception: the runtime would keep it, idle, in whatever namespace it is in. While this
// goroutine holds that thread, the nested Run gets another one.
func runAndEnd(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		done <- f()
		return
	}
	done <- Run(f)
	runtime.UnlockOSThread()
}
