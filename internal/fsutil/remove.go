package fsutil

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// batch is how many names are read from a directory at a time.
const batch = 1024

// RemoveAll removes name of the directory at, with all its contents, even if a sandbox made them. It follows no link,
// and neither memory nor descriptors grow with the depth. No other process may write there meanwhile. freed is the
// number of bytes of disk space released.
func RemoveAll(at int, name string) (freed int64, err error) {
	e := emptier{}
	isDir, err := e.unlink(at, name)
	if err == nil && isDir {
		err = e.removeDir(at, name)
	}
	if err != nil {
		return e.freed, fmt.Errorf("remove %q: %w", name, err)
	}
	return e.freed, nil
}

// Empty removes all contents of tree, as RemoveAll does.
func Empty(tree *os.File) (freed int64, err error) {
	e := emptier{tree: int(tree.Fd())}
	if err := e.run(); err != nil {
		return e.freed, fmt.Errorf("empty %q: %w", tree.Name(), err)
	}
	return e.freed, nil
}

// An emptier empties a tree. It moves a non-empty directory up into tree and empties it from there. So neither memory
// nor descriptors grow with the depth, and no path is ever too long.
type emptier struct {
	tree  int
	freed int64
	last  int // number of the directory that was moved up last
}

// removeDir removes a directory that is not empty.
func (e *emptier) removeDir(at int, name string) error {
	tree, err := e.enter(at, name)
	if err != nil {
		return err
	}
	defer tree.Close()
	e.tree = int(tree.Fd())
	if err := e.run(); err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}

// run removes the entries of the tree, including directories moved up meanwhile, until none are left.
func (e *emptier) run() error {
	for {
		d, err := openDir(e.tree, ".")
		if err != nil {
			return err
		}
		names, err := d.Readdirnames(batch)
		d.Close()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := e.remove(e.tree, name); err != nil {
				return err
			}
		}
	}
}

// remove removes a name of d, emptying it first.
func (e *emptier) remove(d int, name string) error {
	isDir, err := e.unlink(d, name)
	if err != nil || !isDir {
		return err
	}
	sub, err := e.enter(d, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		names, err := sub.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for _, child := range names {
			if err := e.below(int(sub.Fd()), child); err != nil {
				return err
			}
		}
	}
	if err := unix.Unlinkat(d, name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil // some file systems skip names when others go: run comes back
}

// below removes one name of d, or moves it up. If directories cannot be moved (an overlayfs, Landlock's first
// version) it descends instead, with one descriptor for each level.
func (e *emptier) below(d int, name string) error {
	isDir, err := e.unlink(d, name)
	if err != nil || !isDir {
		return err
	}
	err = e.moveUp(d, name)
	if errors.Is(err, unix.EACCES) { // its own ".." changes, and its mode may forbid that
		if err := unix.Fchmodat(d, name, 0o700, 0); err != nil {
			return err
		}
		err = e.moveUp(d, name)
	}
	if errors.Is(err, unix.EXDEV) {
		return e.remove(d, name)
	}
	return err
}

// moveUp moves a directory into the tree itself under an unused name.
func (e *emptier) moveUp(d int, name string) error {
	for {
		e.last++
		err := unix.Renameat2(d, name, e.tree, strconv.Itoa(e.last), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// unlink removes a file or an empty directory. It returns true for a non-empty directory.
func (e *emptier) unlink(d int, name string) (isDir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	flags := 0
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(d, name, flags)
	if flags != 0 && errors.Is(err, unix.ENOTEMPTY) {
		return true, nil
	}
	if err == nil && (flags != 0 || st.Nlink == 1) {
		e.freed += st.Blocks * 512
	}
	return false, err
}

// enter opens a directory for emptying, whatever its mode.
func (e *emptier) enter(d int, name string) (*os.File, error) {
	sub, err := openDir(d, name)
	if !errors.Is(err, unix.EACCES) {
		return sub, err
	}
	if err := unix.Fchmodat(d, name, 0o700, 0); err != nil {
		return nil, err
	}
	return openDir(d, name)
}

// openDir opens a directory below at, through no link and no "..".
func openDir(at int, name string) (*os.File, error) {
	fd, err := Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
