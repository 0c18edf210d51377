// Package procself changes properties of the calling process that Go's runtime does not manage: the state of a thread,
// the signals that end it, and the home directory of a process that sudo started.
package procself

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnDisposableThread runs f on a thread that ends afterwards, so f may leave it in any state: in other namespaces, restricted,
// without capabilities. It returns f's error.
func OnDisposableThread(f func() error) error {
	done := make(chan error, 1)
	go runAndEnd(f, done)
	return <-done
}

// runAndEnd never unlocks its thread: the runtime ends a locked thread when its goroutine returns. The process's
// first thread is the exception: the runtime would keep it, idle, in whatever namespace it is in. While this
// goroutine holds that thread, the nested call gets another one.
func runAndEnd(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		done <- f()
		return
	}
	done <- OnDisposableThread(f)
	runtime.UnlockOSThread()
}
