// Package lockedthread runs functions on threads that nothing else runs on afterwards.
package lockedthread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs f on a thread that ends afterwards, so that f may leave it in any state: in
// other namespaces, restricted, without capabilities. It returns f's error.
func Run(f func() error) error {
	done := make(chan error, 1)
	go runAndEnd(f, done)
	return <-done
}

// runAndEnd never unlocks its thread: the runtime ends a locked thread when its
// goroutine returns. The exception is the process's first thread, which the runtime
// would keep, idle, in whatever namespace it is in; while this goroutine holds that
// one, the next goroutine has to be given another.
func runAndEnd(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		done <- f()
		return
	}
	done <- Run(f)
	runtime.UnlockOSThread()
}
