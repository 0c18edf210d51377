package wrote

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// clockGrain is more than the kernel's clock for time stamps may lag behind ours: it moves with the
// timer tick.
const clockGrain = 50 * time.Millisecond

// Settle makes what a sandbox left in a directory the caller's: owner 0:0 of this user namespace,
// no setuid, setgid or (on files) sticky bit. Other mode bits stay. Only what changed since then,
// when the sandbox was made, is touched, by its ctime, which nobody can set back: a directory full
// of files of others may be given to a sandbox. It must run when no process of the sandbox is alive;
// a file of an id that is not mapped here is left alone. Links are given an owner and not followed.
// Fifos and sockets stay: they harm nobody who does not open them. It goes on after a failure and
// returns the first.
func Settle(dir *os.File, since time.Time) error {
	since = since.Add(-clockGrain)
	w := walk{visit: func(at int, name string, st *unix.Statx_t) error {
		if time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)).Before(since) {
			return nil
		}
		return settle(at, name, st)
	}}
	err := w.run(dir)
	runtime.KeepAlive(dir)
	if err != nil {
		return fmt.Errorf("settle %q: %w", dir.Name(), err)
	}
	return nil
}

// overflowID is what an owner that is not mapped looks like, and also nobody's own id.
const overflowID = 65534

func settle(at int, name string, st *unix.Statx_t) error {
	if err := settleOwner(at, name, st); err != nil {
		return err
	}
	bits := uint16(unix.S_ISUID | unix.S_ISGID | unix.S_ISVTX)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		bits = unix.S_ISUID | unix.S_ISGID
	}
	if st.Mode&bits == 0 {
		return nil
	}
	return clearBits(at, name, bits)
}

// settleOwner runs first: changing an owner takes setuid bits away, and never gives them back.
func settleOwner(at int, name string, st *unix.Statx_t) error {
	if st.Uid == 0 && (st.Gid == 0 || st.Gid == overflowID) {
		return nil // a group that is not mapped is the caller's own arrangement
	}
	err := unix.Fchownat(at, name, 0, 0, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	if st.Uid == overflowID && (err == unix.EPERM || err == unix.EOVERFLOW) {
		return nil // somebody else's
	}
	if err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	return nil
}

// clearBits takes mode bits away from what name is now, which it opens without following it.
func clearBits(at int, name string, bits uint16) error {
	fd, err := unix.Openat2(at, pathOrSelf(name), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	defer unix.Close(fd)
	st, err := stat(fd, "")
	if err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return err
	}
	mode := uint32(st.Mode &^ (unix.S_IFMT | bits))
	err = unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EINVAL { // before 6.6
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
	}
	if err == unix.EPERM && st.Uid == overflowID {
		return nil
	}
	if err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

// pathOrSelf is for calls that know no AT_EMPTY_PATH.
func pathOrSelf(name string) string {
	if name == "" {
		return "."
	}
	return name
}
