package tree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// ownerOnly is the mode of the directories of agents.
const ownerOnly = 0o700

// childDir is where an agent's children write, in its output directory.
const childDir = "child"

// makeChildDir makes child/NAME in out, and opens it. Sandboxes can write to out at the same time: an entry that one of
// them made is an error, and no link is followed.
func makeChildDir(out *os.File, name string) (*os.File, error) {
	all, err := makeDirAt(out, childDir, true)
	if err != nil {
		return nil, fmt.Errorf("make output directory of %q: %w", name, err)
	}
	defer all.Close()
	dir, err := makeDirAt(all, name, false)
	if err != nil {
		return nil, fmt.Errorf("make output directory of %q: %w", name, err)
	}
	return dir, nil
}

// removeChildDir removes child/NAME if it is empty, and child if that was the only one.
func removeChildDir(out *os.File, name string) {
	all, err := openDirAt(out, childDir)
	if err != nil {
		return
	}
	unix.Unlinkat(int(all.Fd()), name, unix.AT_REMOVEDIR)
	all.Close()
	unix.Unlinkat(int(out.Fd()), childDir, unix.AT_REMOVEDIR)
}

// errPlanted means that a sandbox made an entry with a name that is demesne's.
var errPlanted = errors.New("a sandbox made an entry of this name")

// makeDirAt makes a directory in at, and opens it. With again, it may exist.
func makeDirAt(at *os.File, name string, again bool) (*os.File, error) {
	err := unix.Mkdirat(int(at.Fd()), name, ownerOnly)
	if errors.Is(err, unix.EEXIST) && !again {
		return nil, fmt.Errorf("%q: %w", name, errPlanted)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	dir, err := openDirAt(at, name)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		err = fmt.Errorf("%q: %w, and it is not a directory", name, errPlanted)
	}
	return dir, err
}

// openDirAt opens a directory in at, and follows no link.
func openDirAt(at *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openRoot returns the os.Root of an open directory.
func openRoot(dir *os.File) (*os.Root, error) { return os.OpenRoot(fsutil.FDPath(int(dir.Fd()))) }
