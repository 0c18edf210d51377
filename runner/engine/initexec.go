package engine

import (
	"os"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C, before the Go runtime
	"golang.org/x/sys/unix"
)

// fdGuest is where libcontainer leaves the first of its Process.ExtraFiles: PID 1's socket.
const fdGuest = 3

// Inside is libcontainer's half of demesne-runner, which that executes anew for each
// sandbox and which becomes demesne-init. The calling goroutine has to be locked to the
// first thread. It does not return.
//
// It is started before there is a tree. The mount namespace it has by then is a copy of the runner's, in which
// what the runner mounts in [Engine.shown] appears; the first packet on PID 1's socket says that it has, and
// EOF that it will not. libcontainer takes the mounts it finds from there.
func Inside() {
	if !isLetIn() {
		os.Exit(1)
	}
	go leaveWithRunner()
	libcontainer.Init()
}

// leaveWithRunner exits when the other end of PID 1's socket is closed. libcontainer waits to be let on in open(2)
// of a FIFO, from which nothing would wake it were the runner killed, and its reaper too. What comes on the
// socket is PID 1's to read, as is whether it blocks: so what is waited for is an epoll that has it, whose events
// of itself are the hang-up and the error.
func leaveWithRunner() {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return
	}
	err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, fdGuest, &unix.EpollEvent{})
	if err != nil || unix.SetNonblock(fd, true) != nil {
		return
	}
	rc, err := os.NewFile(uintptr(fd), "epoll").SyscallConn()
	if err != nil {
		return
	}
	err = rc.Read(func(fd uintptr) bool {
		n, _ := unix.EpollWait(int(fd), make([]unix.EpollEvent, 1), 0)
		return n > 0
	})
	if err == nil {
		os.Exit(1)
	}
}

// letIn sends what isLetIn waits for.
func letIn(guest *os.File, err error) {
	if err == nil {
		_, err = guest.Write([]byte{0})
	}
	if err != nil {
		guest.Close()
	}
}

func isLetIn() bool {
	unix.SetNonblock(fdGuest, false)
	for {
		n, err := unix.Read(fdGuest, make([]byte, 1))
		if err != unix.EINTR {
			return n == 1
		}
	}
}
