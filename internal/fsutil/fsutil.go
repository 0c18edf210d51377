// Package fsutil has file operations that the standard library lacks: replacing a file durably, directories of records,
// walking and removing trees that an untrusted program wrote, and operations on a directory's descriptor and a name. None of them follows
// a link at the name it is given.
package fsutil

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Short reports whether the machine, or this process, had too little of a resource. The next try may succeed, so it is no
// reason for something weaker.
func Short(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN}, func(e error) bool { return errors.Is(err, e) })
}

// Exists reports whether path exists and is accessible. A link exists even if its target does not.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// WriteFile replaces a file atomically. A reader sees the old content or the new, even after a power failure.
func WriteFile(path string, b []byte, mode fs.FileMode) error {
	return place(path, b, mode, true, os.Rename)
}

// CreateFile is WriteFile for a new file. It fails with fs.ErrExist if path exists: link(2) does not replace.
func CreateFile(path string, b []byte, mode fs.FileMode) error {
	return place(path, b, mode, true, os.Link)
}

// place writes a file under another name, and then calls to with both names. durable means that both survive a power failure.
func place(path string, b []byte, mode fs.FileMode, durable bool, to func(temp, path string) error) error {
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	tmp, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // after a rename it does not exist
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Chmod(mode))
	if durable {
		err = errors.Join(err, tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := to(tmp.Name(), path); err != nil || !durable {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Contains reports whether path is dir or below it. It errs on the side of true.
func Contains(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err != nil || rel == "." || filepath.IsLocal(rel)
}

// Reason strips the operation and the path off a file system error, for messages that have the path as the user typed it.
func Reason(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// PathReason returns the error's path and reason, without the name of the system call.
func PathReason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}

// contextReader returns the context's error once the context has ended.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// ContextReader returns a reader of r that fails with ctx's error once ctx has ended.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }
