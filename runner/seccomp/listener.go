package seccomp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrListener means that system calls of this process have a supervisor already. The kernel allows one for each process
// and its descendants.
var ErrListener = errors.New("system calls of this process have a supervisor already")

// LoadSupervised is [Load] for a program that makes system calls wait for an answer. The owner of the returned descriptor
// answers, as a [Listener]. When its last copy is closed, these calls return ENOSYS.
func LoadSupervised(prog []unix.SockFilter) (*os.File, error) {
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	// Otherwise a signal interrupts a call that is being answered, and the call starts again (Linux 5.19).
	const patient = unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, err := listen(prog, flags|patient)
	if err == unix.EINVAL {
		fd, err = listen(prog, flags)
	}
	switch err {
	case 0:
		return os.NewFile(fd, "seccomp listener"), nil
	case unix.EBUSY:
		return nil, fmt.Errorf("load seccomp filter: %w", ErrListener)
	}
	return nil, fmt.Errorf("load seccomp filter: %w", err)
}

// Supervisable returns why a program cannot have its system calls supervised here, or nil. It changes one thread, which ends.
func Supervisable() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			done <- err
			return
		}
		fd, e := listen([]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
		switch e {
		case 0:
			done <- unix.Close(int(fd))
		case unix.EBUSY:
			done <- ErrListener
		default:
			done <- e
		}
	}()
	return <-done
}

func listen(prog []unix.SockFilter, flags uintptr) (fd uintptr, err unix.Errno) {
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	fd, _, err = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	return fd, err
}

// Listener receives and answers system calls that a filter makes wait, see seccomp_unotify(2). It never lets the kernel
// continue a call: a thread of the caller could change the memory behind a pointer argument after it was read.
type Listener struct{ fd int }

// NewListener returns a Listener for the descriptor of [LoadSupervised], which must stay open.
func NewListener(fd int) Listener { return Listener{fd} }

// Call is a system call that waits for its answer.
type Call struct {
	ID   uint64
	TID  int // of the calling thread, in this process's pid namespace
	Nr   uint32
	Args [6]uint64
}

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// Receive returns the next call. ok is false if no call waits.
func (l Listener) Receive() (c Call, ok bool, err error) {
	poll := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	switch _, err := unix.Poll(poll, 0); {
	case err == unix.EINTR:
		return c, false, nil
	case err != nil:
		return c, false, err
	case poll[0].Revents&unix.POLLIN == 0:
		if poll[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 { // the last process with the filter has ended
			return c, false, os.ErrClosed
		}
		return c, false, nil
	}
	// The kernel may have a longer structure than this package. It writes no more than it was given room for by its own
	// headers, so the buffer has room to spare.
	var buf [512]byte
	n := (*notification)(unsafe.Pointer(&buf))
	if e := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)); e != 0 {
		if e == unix.ENOENT || e == unix.EINTR { // the caller was killed
			return c, false, nil
		}
		return c, false, e
	}
	return Call{ID: n.id, TID: int(n.pid), Nr: uint32(n.nr), Args: n.args}, true, nil
}

// Waits reports whether the call still waits. What was read before from the caller's memory or from its /proc directory
// belongs to the caller only if it does.
func (l Listener) Waits(c Call) bool {
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&c.ID)) == 0
}

// Answer makes the call return 0, or fail with e if e is not 0.
func (l Listener) Answer(c Call, e unix.Errno) {
	response := struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}{id: c.ID, errno: -int32(e)}
	l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&response)) // fails only if the caller was killed
}

// AnswerFile gives the caller a copy of fd, and makes the call return the copy's number (Linux 5.14).
func (l Listener) AnswerFile(c Call, fd int, cloexec bool) unix.Errno {
	request := struct {
		id         uint64
		flags      uint32
		srcfd      uint32
		newfd      uint32
		newfdFlags uint32
	}{id: c.ID, flags: unix.SECCOMP_ADDFD_FLAG_SEND, srcfd: uint32(fd)}
	if cloexec {
		request.newfdFlags = unix.O_CLOEXEC
	}
	// A signal to this thread, such as one of Go's scheduler, would make the kernel answer 0 without a file.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var every, before unix.Sigset_t
	for i := range every.Val {
		every.Val[i] = ^every.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &every, &before); err != nil {
		return unix.EAGAIN
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&request))
}

// ioctl repeats the request after a signal. On success the kernel's result is not an error, whatever it is.
func (l Listener) ioctl(request uintptr, arg unsafe.Pointer) unix.Errno {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), request, uintptr(arg))
		if e != unix.EINTR || request == unix.SECCOMP_IOCTL_NOTIF_RECV {
			return e
		}
	}
}
