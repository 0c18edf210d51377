package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// tempPrefix begins the names of the directories that a build needs on the host, for secrets and copies of files.
const tempPrefix = "demesne-build-"

// tempRoot is where they are: in memory where possible, because secrets are among the files.
func tempRoot() string { return cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()) }

// tempDir makes a private directory. The lock on it shows that its build lives: see sweepTemp.
func tempDir() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(tempRoot(), tempPrefix); err != nil {
		return "", nil, fmt.Errorf("make temporary directory: %w", fsutil.Reason(err))
	}
	lock, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	remove = func() { os.RemoveAll(dir); lock.Close() }
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("lock temporary directory: %w", err)
	}
	return dir, remove, nil
}

// sweepTemp removes what killed builds of this user left.
func sweepTemp() error {
	all, err := os.ReadDir(tempRoot())
	if err != nil {
		return fsutil.Reason(err)
	}
	var errs []error
	for _, e := range all {
		if e.IsDir() && strings.HasPrefix(e.Name(), tempPrefix) {
			errs = append(errs, sweepOne(filepath.Join(tempRoot(), e.Name())))
		}
	}
	return errors.Join(errs...)
}

func sweepOne(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil // another user's, or removed meanwhile
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || int(st.Uid) != os.Getuid() {
		return err
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // its build lives
	}
	return os.RemoveAll(dir)
}
