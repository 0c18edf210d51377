package fsutil

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// WalkDepth is the maximum number of levels that Walk visits; each takes a descriptor.
const WalkDepth = 100

// WalkEntry is a name in the directory or below it.
type WalkEntry struct {
	fs.DirEntry
	Path string // relative to the top

	in *os.Root
}

// Open opens a file for reading, but no link. It never blocks.
func (e WalkEntry) Open() (*os.File, error) {
	has, err := e.Info()
	if err != nil {
		return nil, err
	}
	return openSame(e.in, e.Name(), has)
}

// Info looks the entry up by descriptor, while a DirEntry's Info uses a path.
func (e WalkEntry) Info() (fs.FileInfo, error) { return e.in.Lstat(e.Name()) }

// Readlink returns the target of a symbolic link.
func (e WalkEntry) Readlink() (string, error) { return e.in.Readlink(e.Name()) }

// Walk visits up to most entries below root, until visit returns false. It visits the entries of a directory in
// order of name, and each directory before its contents. It returns the number of directories that it did not read,
// or read only in part.
//
// The directory's content is untrusted, for example an output directory: millions of names, endless levels, links,
// fifos.
//
//	missed := fsutil.Walk(root, 2000, func(e fsutil.WalkEntry) bool {
//		f, err := e.Open()     // for a regular file; follows no link, never blocks
//		…
//		return true            // go on
//	})
//
// Each directory is opened from its parent, so a deep tree costs no more than a wide one. It is read no further
// than the walk goes. Walk changes nothing. A sandbox may write meanwhile: the walk stays below root (os.Root) even
// if files and directories are moved.
func Walk(root *os.Root, most int, visit func(WalkEntry) (more bool)) (missed int) {
	w := &walk{most: most, visit: visit}
	w.dir(root, "", 0)
	return w.missed
}

type walk struct {
	visit        func(WalkEntry) bool
	most, missed int
	enough       bool
}

func (w *walk) dir(at *os.Root, name string, depth int) {
	entries, whole := read(at, w.most)
	if !whole {
		w.missed++
	}
	for _, e := range entries {
		if w.enough {
			return
		}
		if w.most == 0 {
			w.missed++
			return
		}
		w.most--
		full := path.Join(name, e.Name())
		w.enough = !w.visit(WalkEntry{e, full, at})
		if e.IsDir() && !w.enough {
			w.down(at, e.Name(), full, depth+1)
		}
	}
}

func (w *walk) down(at *os.Root, name, full string, depth int) {
	if depth > WalkDepth {
		w.missed++
		return
	}
	below, err := OpenDir(at, name)
	if err != nil { // or the name leads to another file now
		w.missed++
		return
	}
	defer below.Close()
	w.dir(below, full, depth)
}

// read reads up to most entries of a directory, and reports whether that is all of them.
func read(at *os.Root, most int) (entries []fs.DirEntry, whole bool) {
	f, err := at.Open(".")
	if err != nil {
		return nil, false
	}
	defer f.Close()
	entries, err = f.ReadDir(most + 1)
	whole = err == io.EOF || err == nil && len(entries) <= most
	entries = entries[:min(most, len(entries))]
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, whole
}

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
