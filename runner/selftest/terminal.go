package selftest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// typed is what a probe types into the caller's terminal.
const typed = "selftest\n"

func terminalProbes() []probe {
	return []probe{
		{id: "P4", title: "type into the caller's terminal (TIOCSTI)", try: func(*facts) error { return types(unix.TIOCSTI) }},
		{id: "P4", title: "type into it with a request of 64 bits", try: func(*facts) error { return types(1<<32 | unix.TIOCSTI) }},
		{id: "P4", title: "use a console's functions (TIOCLINUX)", try: func(*facts) error {
			return onTerminal(func(fd int) error {
				function := byte(0xff) // there is no such function
				_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, uintptr(unsafe.Pointer(&function)))
				if errno == unix.ENOTTY {
					return absent("the terminal is not a console")
				}
				return errnoError(errno)
			})
		}},
	}
}

func types(request uintptr) error {
	return onTerminal(func(fd int) error {
		for i := range len(typed) {
			c := typed[i]
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&c))); errno != 0 {
				return errno
			}
		}
		return nil
	})
}

// onTerminal tries the terminals that this process has, until one attempt succeeds.
func onTerminal(try func(fd int) error) error {
	err := errors.New("the caller's terminal is not passed")
	fds := []int{0, 1, 2}
	if fd, open := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); open == nil {
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		if _, is := unix.IoctlGetTermios(fd, unix.TCGETS); is != nil {
			continue
		}
		if err = try(fd); err == nil {
			return nil
		}
	}
	return err
}

// terminal is the caller's terminal of one sandbox. It echoes what is typed, so that an attempt shows outside even if the
// sandbox reads it.
type terminal struct {
	master int
	slave  *os.File
}

func newTerminal() (t *terminal, err error) {
	t = &terminal{}
	if t.master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("make terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(t.master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(t.master, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		t.slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		unix.Close(t.master)
		return nil, fmt.Errorf("make terminal: %w", err)
	}
	return t, nil
}

// attach makes it the controlling terminal of a command.
func (t *terminal) attach(cmd *exec.Cmd) {
	cmd.Stdin = t.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

// end closes the terminal, and reports whether someone typed into it.
func (t *terminal) end() bool {
	waiting, _ := unix.IoctlGetInt(int(t.slave.Fd()), unix.TIOCINQ)
	var shown strings.Builder
	buffer := make([]byte, 4096)
	for shown.Len() < 1<<20 {
		n, err := unix.Read(t.master, buffer)
		if n <= 0 || err != nil {
			break
		}
		shown.Write(buffer[:n])
	}
	t.slave.Close()
	unix.Close(t.master)
	return waiting >= len(typed) || strings.Contains(shown.String(), strings.TrimSpace(typed))
}
