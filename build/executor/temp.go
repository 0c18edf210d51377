package executor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// tempPrefix begins the names of the directories that a build needs on the host, for secrets and copies of files.
const tempPrefix = "demesne-build-"

// secretRoot is where most of them are: in memory where possible, because secrets are among the files.
func secretRoot() string { return cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()) }

// contextRoot is where contexts from stdin are. They may be larger than the memory.
func contextRoot() string { return os.TempDir() }

// tempDir makes a private directory for secrets and copies of files.
func tempDir() (dir string, remove func(), err error) { return tempDirIn(secretRoot()) }

// tempDirIn makes a private directory. The lock on it shows that its build lives: see sweepTemp.
func tempDirIn(root string) (dir string, remove func(), err error) {
	for {
		if dir, err = os.MkdirTemp(root, tempPrefix); err != nil {
			return "", nil, fmt.Errorf("make temporary directory: %w", fsutil.Reason(err))
		}
		lock, err := os.Open(dir)
		if err == nil {
			err = flock.Try(lock, flock.Exclusive)
		}
		if err == nil && flock.Leads(dir, lock) {
			return dir, func() { os.RemoveAll(dir); lock.Close() }, nil
		}
		lock.Close() // a no-op on a nil file
		if err != nil && !errors.Is(err, flock.ErrLocked) && !errors.Is(err, fs.ErrNotExist) {
			os.RemoveAll(dir)
			return "", nil, fmt.Errorf("lock temporary directory: %w", err)
		} // else another build swept it away before it was locked
	}
}

// sweepTemp removes what killed builds of this user left.
func sweepTemp() error {
	var errs []error
	for _, root := range slices.Compact([]string{secretRoot(), contextRoot()}) {
		all, err := os.ReadDir(root)
		errs = append(errs, fsutil.Reason(err))
		for _, e := range all {
			if e.IsDir() && strings.HasPrefix(e.Name(), tempPrefix) {
				errs = append(errs, sweepOne(filepath.Join(root, e.Name())))
			}
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
	if flock.Try(f, flock.Exclusive) != nil {
		return nil // its build lives
	}
	return os.RemoveAll(dir)
}
