package rootfs

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A twin is a copy of an overlay's upper that another overlay has below it: whiteouts and opaque directories are
// what they were, and names that were one file are one file.
type twin struct {
	top   int                  // of the copy
	at    string               // the directory below top that is being copied
	files map[[2]uint64]string // of several names: where the first one is
	bytes int64                // that were copied; those that are shared with the original are not
}

// CopyUpper copies what a sandbox wrote, which [KeptUpper] opened, into a directory that will be another's
// Layout.Kept. Where the file system can share contents (FICLONE: btrfs, xfs, bcachefs) the copy shares them, and none of
// their bytes are counted. The sandbox does not write meanwhile.
func CopyUpper(upper, kept *os.File) (bytes int64, err error) {
	from, err := enter(int(upper.Fd()), ".")
	if err != nil {
		return 0, err
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return 0, os.NewSyscallError("stat", err)
	}
	at := int(kept.Fd())
	if err := (dir{fd: at}).mkdir("up", 0o700); err != nil {
		return 0, err
	}
	to, err := enter(at, "up")
	if err != nil {
		return 0, err
	}
	defer unix.Close(to)
	c := copier{buf: make([]byte, 1<<20), twin: &twin{top: to, files: map[[2]uint64]string{}}}
	if err := c.dir(from, to, 0); err != nil {
		return 0, fmt.Errorf("copy files: %w", err)
	}
	// As "." its attributes are reached by the same names as everything else's.
	return c.twin.bytes, attributes(from, to, ".", &st, c.keeps())
}

// entry makes what the merged tree has not: whiteouts, and further names of a file.
func (t *twin) entry(to int, name string, st *unix.Stat_t, whiteout bool) (done bool, err error) {
	if whiteout {
		return true, unix.Mknodat(to, name, unix.S_IFCHR, 0)
	}
	if st.Nlink < 2 || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return false, nil
	}
	key := [2]uint64{uint64(st.Dev), st.Ino}
	if first, ok := t.files[key]; ok {
		return true, unix.Linkat(t.top, first, to, name, 0)
	}
	t.files[key] = path.Join(t.at, name)
	return false, nil
}

// enter is told which directory is copied next, and returns what tells that it has been.
func (t *twin) enter(name string) (leave func()) {
	if t == nil {
		return func() {}
	}
	before := t.at
	t.at = path.Join(before, name)
	return func() { t.at = before }
}

func (t *twin) copied(n int) {
	if t != nil {
		t.bytes += int64(n)
	}
}

const overlayMarks = "user.overlay."

// meansAnythingBelow is of attributes that have a meaning in a copy of an upper: all but those that an overlay would
// find its own inodes by.
func meansAnythingBelow(key string) bool {
	mark, is := strings.CutPrefix(key, overlayMarks)
	if is {
		return !slices.Contains([]string{"origin", "impure", "nlink", "uuid", "upper"}, mark)
	}
	return meansAnything(key)
}
