package tarball

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// file writes one that has no name (O_TMPFILE) and then gives it its own: whoever is killed meanwhile leaves nothing.
// Where the file system has no such files, it is written beside its name and renamed.
func (u *unpacker) file(name string, mode fs.FileMode, c content, r io.Reader) error {
	dir := path.Dir(name)
	if err := u.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := u.root.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, mode)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR): // as open(2) has it; the latter is of old kernels
		err = u.beside(name, mode, c, r)
	case err == nil:
		if err = fill(f, mode, c, r); err == nil {
			err = u.settle(f, name, mode, c)
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		u.did.Files++
		u.did.Bytes += c.data
	}
	return err
}

// fill writes all of the content, no less.
func fill(f *os.File, mode fs.FileMode, c content, r io.Reader) error {
	return errors.Join(c.restore(f, r), f.Chmod(mode))
}

// settle gives a nameless file its name. If something has that already, it gets one beside it for the moment that a rename
// takes. Landlock before its ABI 2 lets no file be linked: then a copy gets the name.
func (u *unpacker) settle(f *os.File, name string, mode fs.FileMode, c content) error {
	err := u.link(f, name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return u.replace(name, func(temp string) error { return u.link(f, temp) })
	case errors.Is(err, unix.EXDEV):
		return u.beside(name, mode, c, c.in(f))
	}
	return err
}

func (u *unpacker) link(f *os.File, name string) error {
	dir, err := u.root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	from := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err = unix.Linkat(unix.AT_FDCWD, from, int(dir.Fd()), path.Base(name), unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &fs.PathError{Op: "linkat", Path: name, Err: err}
	}
	return nil
}

// beside writes a file under another name first.
func (u *unpacker) beside(name string, mode fs.FileMode, c content, r io.Reader) error {
	return u.replace(name, func(temp string) error {
		f, err := u.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		return errors.Join(fill(f, mode, c, r), f.Close())
	})
}

// replace has make make a file of another name beside name, and renames it.
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
