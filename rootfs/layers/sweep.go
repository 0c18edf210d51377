package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
)

// Sweep removes every layer that is neither in keep nor held, and the leftovers of killed processes. It continues
// after an error. freed is the number of bytes that the file system gets back; a file with another link elsewhere
// does not count.
func (c Cache) Sweep(keep []DiffID) (freed int64, err error) {
	kept := map[string]bool{}
	for _, id := range keep {
		name, err := id.encoded()
		if err != nil {
			return 0, fmt.Errorf("sweep layers: %w", err)
		}
		kept[name] = true
	}
	at, err := c.open()
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer at.Close()
	names, err := at.Readdirnames(-1)
	if err != nil {
		return 0, fmt.Errorf("sweep layers: %w", err)
	}
	var errs []error
	for _, name := range names {
		if kept[name] || !ours(name) {
			continue
		}
		n, err := sweep(at, name)
		freed += n
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep layer %q: %w", name, err))
		}
	}
	return freed, errors.Join(errs...)
}

// SweepAll sweeps every cache of the store, as Sweep does. The process's ids may be unable to remove the layers of
// another id map, which are garbage too: left lists the directories of such caches. They are no error.
func (c Cache) SweepAll(keep []DiffID) (freed int64, left []string, err error) {
	var errs []error
	for _, key := range keysOf(c.store) {
		other := Open(c.store, key)
		n, err := other.Sweep(keep)
		freed += n
		switch {
		case key != c.key && errors.Is(err, fs.ErrPermission):
			left = append(left, other.Dir())
		case err != nil:
			errs = append(errs, err)
		}
	}
	return freed, left, errors.Join(errs...)
}

// ours reports whether name is one that this package uses; Sweep leaves other files alone.
func ours(name string) bool {
	for _, prefix := range []string{newPrefix, oldPrefix} {
		name = strings.TrimPrefix(name, prefix)
	}
	return isHex(name)
}

// sweep removes one directory unless another process has locked it.
func sweep(at dir, name string) (int64, error) {
	tree, err := at.lock(name, flock.Try, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) || errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer tree.Close()
	if !strings.HasPrefix(name, ".") {
		// Rename first: if this process were killed half way, the layer would look complete under its own name. An
		// existing .old- directory is from a sweep that was killed, and is removed first.
		old := oldPrefix + name
		freed, err := sweep(at, old)
		if err == nil {
			err = at.rename(name, old)
		}
		if errors.Is(err, unix.EEXIST) { // another sweep is removing the older one
			return freed, nil
		}
		if err != nil {
			return freed, err
		}
		n, err := removeLocked(at, old, tree)
		return freed + n, err
	}
	return removeLocked(at, name, tree)
}
