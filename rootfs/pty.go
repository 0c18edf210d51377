package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// OpenPTY opens a terminal in the tree's devpts: inside it is /dev/pts/N, and it belongs to uid and
// gid (of this user namespace; -1 leaves what it has). The master is non-blocking.
//
// The sandbox cannot redirect it: the directory holds nothing but what the kernel puts there.
func (t *Tree) OpenPTY(uid, gid int) (master *os.File, n int, err error) {
	pts := filepath.Join(t.Dev, "pts")
	fd, err := unix.Open(filepath.Join(pts, "ptmx"), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("open terminal: %w", err)
	}
	n, err = unlockPTY(fd, pts, uid, gid)
	if err != nil {
		unix.Close(fd)
		return nil, 0, err
	}
	return os.NewFile(uintptr(fd), "/dev/pts/"+strconv.Itoa(n)), n, nil
}

// unlockPTY makes the other side of a master usable, and returns its number.
func unlockPTY(master int, pts string, uid, gid int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, fmt.Errorf("unlock terminal: %w", err)
	}
	num, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return 0, fmt.Errorf("number terminal: %w", err)
	}
	n := int(num)
	slave, err := unix.Open(filepath.Join(pts, strconv.Itoa(n)), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open terminal %d: %w", n, err)
	}
	defer unix.Close(slave)
	if err := unix.Fchownat(slave, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return 0, fmt.Errorf("chown terminal %d: %w", n, err)
	}
	return n, nil
}
