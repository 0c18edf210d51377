package hostcmd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// margin is read around a part of a file, so that a secret at its edge is blanked as a whole. It is more than the longest secret in
// its longest form.
const margin = 256 << 10

// readFile reads a part of a file. Its content may have changed since the request: a person approves a file.
func (g *Guard) readFile(f *frozen) (*Result, error) {
	at, err := f.File.reopen(File.sameFile)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if err := onDisk(at); err != nil {
		return nil, fmt.Errorf("%q: %w", f.Given, err)
	}
	from, err := readable(at)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		return nil, err
	}
	start := max(f.Offset-margin, 0)
	b, err := io.ReadAll(io.NewSectionReader(from, start, f.Offset-start+f.Limit+margin))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.Given, fsutil.Reason(err))
	}
	b = g.blank(b)
	skip := min(f.Offset-start, int64(len(b)))
	b = b[skip:]
	res := &Result{Size: st.Size(), Content: b[:min(f.Limit, int64(len(b)))]}
	if int64(len(b)) > f.Limit {
		res.Next = f.Offset + f.Limit
	}
	return res, nil
}

// writeFile creates or replaces a file, by a rename in its frozen directory.
func (g *Guard) writeFile(f *frozen) (*Result, error) {
	dir, err := f.Parent.reopen(File.sameFile)
	if err != nil {
		return nil, fmt.Errorf("directory of %q: %w", f.Given, err)
	}
	defer dir.Close()
	if err := onDisk(dir); err != nil {
		return nil, fmt.Errorf("%q: %w", f.Given, err)
	}
	at, name := int(dir.Fd()), filepath.Base(f.File.Path)
	mode, err := f.File.holds(at, name)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", f.Given, err)
	}
	tmp := "." + text.Shorten(strings.ToLower(rand.Text()), 40) + ".demesne"
	fd, err := unix.Openat(at, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666&mode)
	if err != nil {
		return nil, fmt.Errorf("write %q: %w", f.Given, err)
	}
	to := os.NewFile(uintptr(fd), tmp)
	_, err = to.Write(f.content)
	if f.File.Inode != 0 {
		err = errors.Join(err, unix.Fchmod(fd, mode))
	}
	if err = errors.Join(err, to.Sync(), to.Close()); err == nil {
		flags := uint(unix.RENAME_NOREPLACE)
		if f.File.Inode != 0 {
			flags = 0
		}
		if err = unix.Renameat2(at, tmp, at, name, flags); err == unix.EEXIST {
			err = errChanged
		}
	}
	if err != nil {
		unix.Unlinkat(at, tmp, 0)
		return nil, fmt.Errorf("write %q: %w", f.Given, err)
	}
	return &Result{Size: int64(len(f.content)), Created: f.File.Inode == 0}, nil
}

// holds checks that a name of a directory is still the frozen file, or none, and returns the mode for its replacement. That has no
// setuid bit.
func (w File) holds(at int, name string) (mode uint32, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT && w.Inode == 0:
		return 0o666, nil
	case err == unix.ENOENT:
		return 0, errChanged
	case err != nil:
		return 0, err
	case uint64(st.Dev) != w.Dev || st.Ino != w.Inode || st.Ctim.Nano() != w.CTime || st.Mode != w.Mode:
		return 0, errChanged
	}
	return st.Mode & 0o777, nil
}

// maxEntries bounds a listing.
const maxEntries = 1000

func (g *Guard) listDir(f *frozen) (*Result, error) {
	at, err := f.File.reopen(File.sameFile)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if err := onDisk(at); err != nil {
		return nil, fmt.Errorf("%q: %w", f.Given, err)
	}
	dir, err := os.Open(fsutil.FDPath(int(at.Fd())))
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", f.Given, fsutil.Reason(err))
	}
	defer dir.Close()
	found, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list %q: %w", f.Given, fsutil.Reason(err))
	}
	res := &Result{Entries: []Entry{}, Cut: len(found) > maxEntries}
	for _, e := range found[:min(len(found), maxEntries)] {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue // it is gone
		}
		res.Entries = append(res.Entries, entryOf(e, st))
	}
	slices.SortFunc(res.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return res, nil
}

func entryOf(e os.DirEntry, st unix.Stat_t) Entry {
	kind := map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFLNK: "link"}[st.Mode&unix.S_IFMT]
	if kind == "" {
		kind = "other"
	}
	return Entry{
		Name: strings.ToValidUTF8(e.Name(), "\uFFFD"), Type: kind, Size: st.Size,
		Mode: os.FileMode(st.Mode & 0o777).String(), Modified: timeOf(st.Mtim),
	}
}
