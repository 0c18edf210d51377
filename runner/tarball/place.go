package tarball

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// file writes a nameless file (O_TMPFILE) and then links it to its name, so a killed process leaves nothing behind.
// If the file system does not support O_TMPFILE, it writes beside the name and renames.
func (u *unpacker) file(name string, m meta, c content, r io.Reader) error {
	dir := path.Dir(name)
	if err := u.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := u.root.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, m.mode)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR): // see open(2); old kernels return EISDIR
		err = u.beside(name, m, c, r)
	case err == nil:
		if err = fill(f, m, c, r); err == nil {
			err = u.settle(f, name, m, c)
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		u.did.Files++
		u.did.Bytes += c.data
		u.Limits.Meter.file()
	}
	return err
}

// meta is the metadata of a file that a copy keeps.
type meta struct {
	mode  fs.FileMode
	mtime time.Time
}

// fill writes the complete content and sets the mode and the time.
func fill(f *os.File, m meta, c content, r io.Reader) error {
	return errors.Join(c.restore(f, r), f.Chmod(m.mode), setTime(f, m.mtime))
}

// setTime sets the modification time. The stream may contain any time; the file system clamps it.
func setTime(f *os.File, t time.Time) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: t.Unix(), Nsec: int64(t.Nanosecond())}}
	if err := unix.UtimesNanoAt(int(f.Fd()), "", times, unix.AT_EMPTY_PATH); err != nil && err != unix.EPERM { // another user's directory
		return &fs.PathError{Op: "utimensat", Path: f.Name(), Err: err}
	}
	return nil
}

// directory creates a directory or merges with an existing one, which then belongs to the copy. Its time is set when
// all entries have arrived.
func (u *unpacker) directory(name string, m meta) error {
	u.dirs = append(u.dirs, dirTime{name, m.mtime})
	return u.root.MkdirAll(name, m.mode)
}

type dirTime struct {
	name  string
	mtime time.Time
}

// setDirTimes sets the times of the directories. It ignores one that was moved or removed meanwhile.
func (u *unpacker) setDirTimes() error {
	for _, d := range u.dirs {
		f, err := u.root.OpenFile(d.name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if err := errors.Join(setTime(f, d.mtime), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// settle gives a nameless file its name. If the name exists, the file briefly gets a temporary name and replaces it
// by rename. Landlock before ABI 2 does not allow links between directories, and AppArmor may find no path of the file
// (ENOENT), so settle then copies the file.
func (u *unpacker) settle(f *os.File, name string, m meta, c content) error {
	err := u.link(f, name)
	if errors.Is(err, fs.ErrExist) {
		err = u.replace(name, func(temp string) error { return u.link(f, temp) })
	}
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) {
		return u.beside(name, m, c, c.in(f))
	}
	return err
}

func (u *unpacker) link(f *os.File, name string) error {
	dir, err := u.root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	from := fsutil.FDPath(int(f.Fd()))
	err = unix.Linkat(unix.AT_FDCWD, from, int(dir.Fd()), path.Base(name), unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &fs.PathError{Op: "linkat", Path: name, Err: err}
	}
	return nil
}

// beside writes a file under a temporary name and renames it.
func (u *unpacker) beside(name string, m meta, c content, r io.Reader) error {
	return u.replace(name, func(temp string) error {
		f, err := u.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.mode)
		if err != nil {
			return &fs.PathError{Op: "openat", Path: name, Err: fsutil.Reason(err)}
		}
		return errors.Join(fill(f, m, c, r), f.Close())
	})
}

// replace calls make for a temporary name beside name, and renames the result to name.
func (u *unpacker) replace(name string, make func(temp string) error) error {
	dir := path.Dir(name)
	if err := u.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp := path.Join(dir, fmt.Sprintf(".demesne-%d-%d", os.Getpid(), u.left.entries))
	if err := make(temp); err != nil {
		u.root.Remove(temp)
		return err
	}
	if err := u.root.Rename(temp, name); err != nil {
		u.root.Remove(temp)
		return err
	}
	return nil
}
