package rootfs

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// OpenPTY opens a terminal in the tree's devpts. Inside it is /dev/pts/N, and it belongs to uid and gid (of this
// user namespace; -1 leaves the id unchanged). The master is non-blocking.
//
// The sandbox cannot redirect it: only the kernel creates files in that directory.
func (t *Tree) OpenPTY(uid, gid int) (master *os.File, n int, err error) {
	conn, err := t.pts.SyscallConn() // keeps the descriptor open meanwhile
	if err != nil {
		return nil, 0, fmt.Errorf("open terminal: %w", err)
	}
	var fd int
	if cerr := conn.Control(func(pts uintptr) { fd, n, err = openPTY(int(pts), uid, gid) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), "/dev/pts/"+strconv.Itoa(n)), n, nil
}

func openPTY(pts, uid, gid int) (master, n int, err error) {
	master, err = unix.Openat(pts, "ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, 0, err
	}
	n, err = unlockPTY(master, pts, uid, gid)
	if err != nil {
		unix.Close(master)
		return -1, 0, err
	}
	return master, n, nil
}

// unlockPTY makes the slave of a master usable, and returns its number.
func unlockPTY(master, pts, uid, gid int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, fmt.Errorf("unlock: %w", err)
	}
	num, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return 0, fmt.Errorf("number: %w", err)
	}
	slave, err := unix.Openat(pts, strconv.Itoa(int(num)), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %d: %w", num, err)
	}
	defer unix.Close(slave)
	if err := unix.Fchownat(slave, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return 0, fmt.Errorf("chown %d: %w", num, err)
	}
	return int(num), nil
}
