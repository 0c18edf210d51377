package fsutil

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ReadPrivate reads a regular file of at most most bytes that belongs to this user and is closed to all others. It follows no
// link.
func ReadPrivate(path string, most int64) ([]byte, error) {
	text, err := readGuarded(path, unix.O_NOFOLLOW, most, func(st *unix.Stat_t) error {
		switch {
		case int(st.Uid) != os.Geteuid():
			return errOthers
		case st.Mode&0o077 != 0:
			return errors.New("other users can read it: chmod 600")
		}
		return nil
	})
	if at := (*fs.PathError)(nil); err != nil && !errors.As(err, &at) {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return text, err
}

// ReadRegular reads a regular file of at most most bytes of any owner. It does not follow a link at the end of path.
func ReadRegular(path string, most int64) ([]byte, error) {
	text, err := readGuarded(path, unix.O_NOFOLLOW, most, func(*unix.Stat_t) error { return nil })
	if errors.Is(err, unix.ELOOP) {
		err = errors.New("is a symbolic link")
	}
	return text, err
}

// ReadTrusted reads a regular file of at most most bytes that only this user and root can change. It follows links. Its
// errors do not name the path, unless the file cannot be opened.
func ReadTrusted(path string, most int64) ([]byte, error) {
	return readGuarded(path, 0, most, func(st *unix.Stat_t) error {
		switch {
		case st.Mode&0o022 != 0:
			return errors.New("other users can write it: chmod go-w")
		case st.Uid != 0 && int(st.Uid) != os.Geteuid():
			return errOthers
		}
		return nil
	})
}

var errOthers = errors.New("belongs to another user")

// readGuarded reads a regular file that guard accepts.
func readGuarded(path string, flag int, most int64, guard func(*unix.Stat_t) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|flag, 0) // O_NONBLOCK: a FIFO must not wait for a writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a file")
	}
	if err := guard(&st); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if int64(len(text)) > most {
		return nil, fmt.Errorf("more than %d bytes", most)
	}
	return text, err
}
