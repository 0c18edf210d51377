package fileops

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// put replaces a file's bytes. An existing file keeps its owner and its mode. A new one has mode 0644, whatever the umask.
// A stream that breaks off changes no file.
func (s *server) put(t Request) error {
	s.content.Reset(&unchunked{r: s.in, shared: s.memory, taken: func() error {
		s.out.WriteByte(taken)
		return s.out.Flush()
	}})
	_, err := s.content.Peek(smallMost)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	small := err != nil
	info, missing := os.Stat(t.Path)
	switch {
	case missing != nil: // most often it does not exist
		if err := makeDirs(filepath.Dir(t.Path), t.Owner); err != nil {
			return err
		}
	case info.IsDir():
		return &fs.PathError{Op: "write", Path: t.Path, Err: unix.EISDIR}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "write", Path: t.Path, Err: unix.EINVAL}
	}
	content := io.Reader(s.content)
	if !small {
		draft, err := s.draft(t.Path)
		if err != nil {
			return err
		}
		defer draft.Close()
		if missing != nil && link(draft, t.Path) == nil {
			return s.finish(draft, t)
		}
		content = draft
	}
	// Without O_TRUNC: ext4 takes a millisecond for that (auto_da_alloc).
	f, err := os.OpenFile(t.Path, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if missing != nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = fill(f, content)
	}
	if err != nil {
		return err
	}
	return s.finish(f, t)
}

// draft returns a file without a name that has all of the content, in the directory of path if possible.
func (s *server) draft(path string) (*os.File, error) {
	var f *os.File
	fd, err := unix.Open(filepath.Dir(path), unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o644)
	if err == nil {
		f = os.NewFile(uintptr(fd), path)
	} else { // the directory is not writable, or its file system cannot do that
		if f, err = os.CreateTemp("", ".demesne-*"); err != nil {
			return nil, err
		}
		os.Remove(f.Name())
	}
	err = f.Chmod(0o644)
	if err == nil {
		err = fill(f, s.content)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// link gives a draft its name, which must not exist yet.
func link(draft *os.File, name string) error {
	from := "/proc/self/fd/" + strconv.Itoa(int(draft.Fd()))
	return unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
}

// fill writes the content of f from its start, and cuts off what is left of an earlier one.
func fill(f *os.File, content io.Reader) error {
	n, err := io.Copy(f, content) // both kinds of content have a copy without another buffer
	if err != nil {
		return err
	}
	if st, err := f.Stat(); err != nil || st.Size() <= n {
		return err
	}
	return f.Truncate(n)
}
