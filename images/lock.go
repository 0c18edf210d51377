package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock takes the lock that guards index.json and the removal of blobs.
func (s *Store) lock(ctx context.Context) (*os.File, error) {
	f, err := lockFile(ctx, s.path("locks/index"), os.O_RDWR|os.O_CREATE, syscall.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	return f, nil
}

// lockFile opens and locks a file that other processes may remove or replace. It waits for the
// lock. The returned file is locked, and path leads to it.
func lockFile(ctx context.Context, path string, flags, how int) (*os.File, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		f, err := tryLockFile(path, flags, how)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// tryLockFile is lockFile without the wait. It returns EWOULDBLOCK if another open file holds a
// conflicting lock.
func tryLockFile(path string, flags, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|syscall.LOCK_NB); err != nil {
			f.Close()
			return nil, err
		}
		if isStill(f, path) {
			return f, nil
		}
		f.Close()
	}
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return fmt.Errorf("lock %s: %w", filepath.Base(f.Name()), err)
		}
	}
}

// isStill reports whether path leads to f.
func isStill(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
