package container

import (
	"os"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C constructor runs before the Go runtime
	"golang.org/x/sys/unix"
)

// fdInit is the descriptor of PID 1's socket: libcontainer puts the first of Process.ExtraFiles there.
const fdInit = 3

// Inside is libcontainer's half of demesne-runner. libcontainer executes it for each sandbox, and it becomes
// demesne-init. The calling goroutine must be locked to the main thread. Inside does not return.
//
// It starts before the tree is mounted. Its mount namespace is a copy of the runner's, in which the runner's shared
// mounts appear. The first packet on PID 1's socket says that the tree is there; EOF says that it will
// not be. libcontainer uses the mounts that it finds from then on.
func Inside() {
	if !isLetIn() {
		os.Exit(1)
	}
	go leaveWithRunner()
	// So that libcontainer may bind it: the runner's is unbindable, and Linux 6.12 keeps that in a slave.
	unix.Mount("", "/proc", "", unix.MS_PRIVATE, "")
	libcontainer.Init()
}

// leaveWithRunner exits when the other end of PID 1's socket is closed. libcontainer waits in open(2) of a FIFO,
// and nothing would wake it if both the runner and its reaper were killed. The data on the socket, and its blocking
// mode, belong to PID 1. So leaveWithRunner polls an epoll descriptor that watches the socket for EPOLLHUP and
// EPOLLERR only, which epoll(7) always reports.
func leaveWithRunner() {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return
	}
	err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, fdInit, &unix.EpollEvent{})
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

// letIn sends the packet that isLetIn waits for, or closes the socket.
func letIn(socket *os.File, err error) {
	if err == nil {
		_, err = socket.Write([]byte{0})
	}
	if err != nil {
		socket.Close()
	}
}

func isLetIn() bool {
	unix.SetNonblock(fdInit, false)
	for {
		n, err := unix.Read(fdInit, make([]byte, 1))
		if err != unix.EINTR {
			return n == 1
		}
	}
}
