// Package flock locks files between processes with flock(2), and queues processes in order of arrival.
//
//	f, err := flock.Open(ctx, path, os.O_RDWR|os.O_CREATE, flock.Exclusive)   // waits
//	err := flock.Try(f, flock.Shared)                                         // flock.ErrLocked: another open file holds the
//	lock
//	turn, err := flock.JoinQueue(dir, "jobs", id)                             // first come, first served
//
// A lock belongs to the open file, not to the process: it ends when the last descriptor of that file is closed, in
// whichever process. So a killed process leaves no lock behind, and a child process that inherits the descriptor
// inherits the lock. Locks are advisory. Some network file systems have none.
//
// A shared lock of a file on a read-only file system is no lock, and always succeeds: this machine changes nothing there.
package flock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Mode is the kind of a lock.
type Mode int

const (
	Shared    Mode = unix.LOCK_SH
	Exclusive Mode = unix.LOCK_EX
)

// ErrLocked reports that another open file has a conflicting lock.
const ErrLocked = unix.EWOULDBLOCK

// Lock locks f, and waits for that. It may also change the mode of a lock that f has.
func Lock(f *os.File, how Mode) error { return flock(f, int(how)) }

// Try is Lock without the wait: it returns [ErrLocked] instead.
func Try(f *os.File, how Mode) error { return flock(f, int(how)|unix.LOCK_NB) }

// Unlock releases the lock of f, also where a process that is being started has a copy of its descriptor: such a copy
// would keep a lock that Close alone leaves, until that process executes its program.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	var st unix.Statfs_t
	if how&unix.LOCK_SH != 0 && unix.Fstatfs(int(f.Fd()), &st) == nil && st.Flags&unix.ST_RDONLY != 0 {
		return nil
	}
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// Held reports whether another open file has the file at path locked exclusively.
func Held(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = Try(f, Shared)
	if errors.Is(err, ErrLocked) {
		return true, nil
	}
	return false, err
}

// Open opens and locks a file that other processes may remove or replace. It waits for the lock. The returned file is
// locked, and path leads to it.
func Open(ctx context.Context, path string, flags int, how Mode) (*os.File, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		f, err := TryOpen(path, flags, how)
		if !errors.Is(err, ErrLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// TryOpen is Open without the wait: it returns an error that wraps [ErrLocked] instead.
func TryOpen(path string, flags int, how Mode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := Try(f, how); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
		}
		if Leads(path, f) {
			return f, nil
		}
		f.Close()
	}
}

// TryDir opens and locks a directory of root. It returns [ErrLocked] if that is locked, and
// [fs.ErrNotExist] if name leads to another directory by then.
func TryDir(root *os.Root, name string, how Mode) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	err = Try(f, how)
	var now, then fs.FileInfo
	if err == nil {
		now, err = root.Lstat(name)
	}
	if err == nil {
		then, err = f.Stat()
	}
	if err == nil && !os.SameFile(now, then) {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Leads reports whether path leads to f.
func Leads(path string, f *os.File) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
