package layers

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Sweep removes every layer that is neither in keep nor held, and what killed processes left
// behind. It goes on after an error. freed are the bytes the file system gets back; a file that
// is linked from elsewhere too gives none.
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

// ours tells whether this package gives such names: whatever else is there is not touched.
func ours(name string) bool {
	for _, prefix := range []string{newPrefix, oldPrefix} {
		name = strings.TrimPrefix(name, prefix)
	}
	return isHex(name)
}

// sweep removes one directory if nobody has locked it.
func sweep(at dir, name string) (int64, error) {
	tree, err := at.lock(name, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer tree.Close()
	if !strings.HasPrefix(name, ".") {
		// Under its own name it would be taken for complete, were we killed half way. An older one of
		// that name is what a sweep was killed at: it goes first.
		old := oldPrefix + name
		freed, err := sweep(at, old)
		if err == nil {
			err = at.rename(name, old)
		}
		if errors.Is(err, unix.EEXIST) { // another sweep is at the older one
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
