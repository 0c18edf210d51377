package probe

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// spend runs f on a thread that ends afterwards, so that f may leave it in any
// state: in other namespaces, restricted, filtered.
func spend(f func() error) error {
	done := make(chan error, 1)
	go spendThread(f, done)
	return <-done
}

// spendThread never unlocks its thread, so that the runtime ends it with the
// goroutine. The process's first thread would be kept, so while this goroutine
// holds that one, it lets another, which cannot get the same, do the work.
func spendThread(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		done <- f()
		return
	}
	done <- spend(f)
	runtime.UnlockOSThread()
}
