package pid1

import (
	"os"
	"runtime"
	"strconv"

	"demesne/runner/ipc"

	"golang.org/x/sys/unix"
)

// identity is the user a command will run as. PID 1 has no capability over files. It therefore opens and checks
// files for a command with the command's file system ids, which are per thread.
type identity struct {
	change   bool // false: keep PID 1's own ids
	uid, gid uint32
}

// as runs f with the identity's file system ids. Supplementary groups remain PID 1's; where they matter, execve
// decides.
func (i identity) as(f func() error) error {
	if !i.change || (i.uid == uint32(os.Geteuid()) && i.gid == uint32(os.Getegid())) {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.SetfsgidRetGid(int(i.gid))
	unix.SetfsuidRetUid(int(i.uid))
	defer unix.SetfsgidRetGid(os.Getegid())
	defer unix.SetfsuidRetUid(os.Geteuid())
	return f()
}

// access checks that path can be executed or, with O_DIRECTORY, entered.
func (i identity) access(path string, flags int) error {
	return i.as(func() error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if flags&unix.O_DIRECTORY == 0 && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return unix.EISDIR
		}
		err = unix.Faccessat(fd, "", unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
		if is(err, unix.ENOSYS, unix.EINVAL) { // before Linux 5.8: leave the check to execve
			return nil
		}
		return err
	})
}

// openTTY opens terminal n of the sandbox's devpts.
func (i identity) openTTY(n int) (tty *os.File, err error) {
	path := "/dev/pts/" + strconv.Itoa(n)
	err = i.as(func() error {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			tty = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInternal, "open terminal %d: %w", n, err)
	}
	return tty, nil
}
