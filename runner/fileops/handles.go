package fileops

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of open files. A handle is a descriptor of the process in the sandbox.
const (
	ReadMost   = 256 << 10 // bytes of a Read or a Write
	handleMost = 128       // open files of a process
)

// openFlags are the flags of open(2) that a caller may set.
const openFlags = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_TRUNC | unix.O_APPEND

// serveFile serves the operations of this file.
func (s *server) serveFile(t Request) error {
	switch t.Op {
	case OpOpen:
		return s.open(t)
	case OpRead, OpWrite, OpClose:
		return s.handled(t)
	case OpHere:
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		return s.about(dir)
	}
	if err := t.single(); err != nil {
		return &fs.PathError{Op: string(t.Op), Path: t.Path, Err: err}
	}
	return s.answer(Answer{})
}

// single performs an operation that is one call of the kernel, or a few on one file.
func (t Request) single() error {
	switch t.Op {
	case OpAttr:
		return t.Attr.set(t.Path)
	case OpRename:
		return unix.Rename(t.Path, t.To)
	case OpLink:
		return unix.Link(t.Path, t.To)
	case OpSymlink:
		return unix.Symlink(t.To, t.Path)
	case OpUnlink:
		return unix.Unlink(t.Path)
	case OpRmdir:
		return unix.Rmdir(t.Path)
	case OpMakeDir:
		return unix.Mkdir(t.Path, t.Mode&0o7777)
	}
	return unix.EINVAL
}

// set sets the attributes of the file at a path, or of the file that a link leads to.
func (a *Attr) set(path string) error {
	if a == nil {
		return unix.EINVAL
	}
	if a.Size != nil {
		if err := unix.Truncate(path, *a.Size); err != nil {
			return err
		}
	}
	if a.Owner != nil {
		if err := unix.Chown(path, int(a.Owner.UID), int(a.Owner.GID)); err != nil {
			return err
		}
	}
	if a.Mode != nil {
		if err := unix.Chmod(path, *a.Mode&0o7777); err != nil {
			return err
		}
	}
	if a.Accessed == nil && a.Modified == nil {
		return nil
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	for i, to := range []*time.Time{a.Accessed, a.Modified} {
		if to != nil {
			times[i] = unix.NsecToTimespec(to.UnixNano())
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, 0)
}

// open opens a regular file. Another kind could block the process, or have effects.
func (s *server) open(t Request) error {
	if len(s.files) >= handleMost {
		return &fs.PathError{Op: "open", Path: t.Path, Err: unix.EMFILE}
	}
	if st, err := os.Stat(t.Path); err == nil && !st.Mode().IsRegular() {
		code := unix.EINVAL
		if st.IsDir() {
			code = unix.EISDIR
		}
		return &fs.PathError{Op: "open", Path: t.Path, Err: code}
	}
	fd, err := unix.Open(t.Path, t.Flags&openFlags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, t.Mode&0o7777)
	if err != nil {
		return &fs.PathError{Op: "open", Path: t.Path, Err: err}
	}
	f := os.NewFile(uintptr(fd), t.Path)
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return &fs.PathError{Op: "open", Path: t.Path, Err: unix.EINVAL}
	}
	if s.files == nil {
		s.files = map[int]*os.File{}
	}
	s.opened++
	s.files[s.opened] = f
	return s.answer(Answer{Handle: s.opened})
}

// handled serves an operation on an open file. It takes the bytes of a Write before it answers, so that a failed Write
// leaves the stream in order.
func (s *server) handled(t Request) error {
	var data []byte
	if t.Op == OpWrite {
		var err error
		if data, err = readMost(s.in, s.block()); err != nil {
			return err
		}
	}
	f := s.files[t.Handle]
	if f == nil {
		return unix.EBADF
	}
	if t.Offset < 0 || t.Offset > math.MaxInt64-ReadMost {
		return unix.EINVAL
	}
	switch t.Op {
	case OpClose:
		delete(s.files, t.Handle)
		if err := f.Close(); err != nil {
			return err
		}
		return s.answer(Answer{})
	case OpWrite:
		if _, err := writeAt(int(f.Fd()), data, t.Offset); err != nil {
			return err
		}
		return s.answer(Answer{})
	}
	buf := s.block()[:max(0, min(t.Size, ReadMost))]
	n, err := readAt(int(f.Fd()), buf, t.Offset)
	if err != nil {
		return err
	}
	if err := s.answer(Answer{}); err != nil {
		return err
	}
	to := Chunks(s.out)
	if _, err := to.Write(buf[:n]); err != nil {
		return err
	}
	return to.Close()
}

// block returns the buffer of Reads and Writes, which most processes never need.
func (s *server) block() []byte {
	if s.large == nil {
		s.large = make([]byte, ReadMost)
	}
	return s.large
}

func readAt(fd int, b []byte, offset int64) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pread(fd, b[n:], offset+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

func writeAt(fd int, b []byte, offset int64) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pwrite(fd, b[n:], offset+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// Name returns the last part of an Info's path. It is never empty, and names no other directory, whatever the sandbox sent.
func (i *Info) Name() (string, error) {
	name := filepath.Base(i.Path)
	if name == "." || name == ".." || name == "/" || strings.ContainsRune(name, 0) || len(name) > 255 {
		return "", fmt.Errorf("the sandbox sent the name %q", name)
	}
	return name, nil
}
