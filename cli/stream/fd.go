package stream

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FD returns f's descriptor. Unlike os.File.Fd it does not change the flags of the open file description,
// which the caller shares.
func FD(f *os.File) int {
	fd := -1
	if rc, err := f.SyscallConn(); err == nil {
		rc.Control(func(n uintptr) { fd = int(n) })
	}
	return fd
}

// pipeName distinguishes this program's pipes from the caller's.
const pipeName = "demesne pipe"

// pipe returns both ends of a pipe. ours is the index of this program's end (0: r, 1: w); with polled it is
// non-blocking and in Go's poller. The command's end blocks, as programs expect. Mode 0666 lets a command that
// runs as another user open its own /dev/stdout; only processes that hold the pipe can name it.
func pipe(ours int, polled bool) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	err = unix.Fchmod(fds[0], 0o666)
	if polled && err == nil {
		err = unix.SetNonblock(fds[ours], true)
	}
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("set up pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), pipeName), os.NewFile(uintptr(fds[1]), pipeName), nil
}

// Stat returns the result of fstat(2) on a file.
func Stat(f *os.File) (st unix.Stat_t) {
	// An error leaves st zero: a file of unknown kind, which is the safe answer.
	unix.Fstat(FD(f), &st)
	return st
}

func isPipe(f *os.File) bool { return Stat(f).Mode&unix.S_IFMT == unix.S_IFIFO }

// isNull reports whether f is /dev/null, device 1:3.
func isNull(f *os.File) bool {
	st := Stat(f)
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(FD(f), unix.TCGETS)
	return err == nil
}

// sameFile reports whether a and b are the same file, as after 2>&1.
func sameFile(a, b *os.File) bool {
	x, y := Stat(a), Stat(b)
	return x.Ino == y.Ino && x.Dev == y.Dev && x.Mode == y.Mode && x.Mode != 0
}

// ready reports whether fd can be read (or written) now, or has failed or hung up.
func ready(fd int, events int16) bool { return poll(fd, events, 0) }

func await(fd int, events int16) { poll(fd, events, -1) }

func poll(fd int, events int16, timeout int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(p, timeout)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// WriteAll writes b to fd, which may be blocking or non-blocking: the caller owns its flags.
func WriteAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case err == unix.EAGAIN:
			await(fd, unix.POLLOUT)
		case err == unix.EINTR:
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}
