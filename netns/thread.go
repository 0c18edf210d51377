package netns

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Spend runs f on a thread that ends afterwards, so that f may leave it in any state: in
// other namespaces, restricted, without capabilities. It returns f's error.
func Spend(f func() error) error {
	done := make(chan error, 1)
	go spendThread(f, done)
	return <-done
}

// spendThread never unlocks its thread: the runtime ends a locked thread when its
// goroutine returns. The exception is the process's first thread, which the runtime
// would keep, idle, in whatever namespace it is in; while this goroutine holds that
// one, the next goroutine has to be given another.
func spendThread(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		done <- f()
		return
	}
	done <- Spend(f)
	runtime.UnlockOSThread()
}
