package fsutil

import (
	"cmp"
	"io/fs"
	"os"
	"syscall"
)

// OpenRegular opens a regular file of dir for reading, but no link. It never blocks.
func OpenRegular(dir *os.Root, name string) (*os.File, error) {
	has, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !has.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EINVAL}
	}
	return openSame(dir, name, has)
}

// openSame opens the entry that has describes. An os.Root follows a link whose target lies below it, even with O_NOFOLLOW. So
// openSame compares the opened file with the entry.
func openSame(dir *os.Root, name string, has fs.FileInfo) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if is, err := f.Stat(); err != nil || !os.SameFile(is, has) {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: cmp.Or(err, error(syscall.ELOOP))}
	}
	return f, nil
}

// OpenDir opens a directory of dir, but no link, as [OpenRegular] does.
func OpenDir(dir *os.Root, name string) (*os.Root, error) {
	has, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !has.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if is, err := sub.Stat("."); err != nil || !os.SameFile(is, has) {
		sub.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: cmp.Or(err, error(syscall.ELOOP))}
	}
	return sub, nil
}
