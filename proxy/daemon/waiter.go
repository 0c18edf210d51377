package daemon

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waiter waits on the sockets of all sandboxes and starts serving each one at its first connection. Most sockets
// never get one. A served socket takes up to 7 KiB for its goroutine and its state, and a sandbox has five. A waiting
// socket takes 0.2 KiB.
type waiter struct {
	fd   int // of epoll(7)
	file *os.File

	mu   sync.Mutex
	last int32
	idle map[int32]idleSocket
}

// idleSocket is a socket that has had no connection yet.
type idleSocket struct {
	f     *os.File
	serve func(*os.File)
}

func newWaiter() (*waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // otherwise the runtime would block a thread on it
	}
	if err != nil {
		return nil, fmt.Errorf("wait at sockets: %w", os.NewSyscallError("epoll_create1", err))
	}
	w := &waiter{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), idle: map[int32]idleSocket{}}
	go w.work()
	return w, nil
}

// wait takes ownership of f, a socket in blocking or non-blocking mode. At the first event it calls serve with f,
// once and on a new goroutine. The number is the argument for leave.
func (w *waiter) wait(f *os.File, serve func(*os.File)) (number int32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for taken := true; taken; _, taken = w.idle[w.last] {
		w.last++
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: w.last}
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(f.Fd()), &event); err != nil {
		f.Close()
		return 0, fmt.Errorf("wait at a socket: %w", os.NewSyscallError("epoll_ctl", err))
	}
	w.idle[w.last] = idleSocket{f, serve}
	return w.last, nil
}

// leave closes a socket, unless it is already being served.
func (w *waiter) leave(number int32) {
	if at, ok := w.take(number); ok {
		at.f.Close()
	}
}

// take stops waiting on a socket. Closing the socket would not, because the runner also has it open.
func (w *waiter) take(number int32) (at idleSocket, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok = w.idle[number]; ok {
		delete(w.idle, number)
		unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, int(at.f.Fd()), nil)
	}
	return at, ok
}

// work runs until the process ends.
func (w *waiter) work() {
	raw, err := w.file.SyscallConn()
	for err == nil {
		var events [16]unix.EpollEvent
		n := 0
		err = raw.Read(func(uintptr) bool {
			n = w.come(events[:])
			return n > 0
		})
		for _, e := range events[:n] {
			if at, ok := w.take(e.Fd); ok {
				go at.serve(at.f)
			}
		}
	}
}

// come calls epoll_pwait(2). The runtime uses the same call, so the seccomp filter allows it on every architecture.
func (w *waiter) come(events []unix.EpollEvent) int {
	n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}
