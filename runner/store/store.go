// Package store keeps sandboxes on disk. A [Store] is the directory of persistent sandboxes, whose files outlive
// their processes:
//
//	DIR/ID/            flock(2)ed by the runner that has the sandbox, from creation on
//	DIR/ID/spec.json   a [Record]; written atomically, as the last step of creation
//	DIR/ID/until       empty; its mtime is the expiry time, so one system call renews it
//	DIR/ID/tree/       files the sandbox wrote: the upper of its overlay, see package rootfs
//	DIR/.old-…         being removed
//	DIR/.slot-ID       counts a sandbox that may have no record, see [Store.Slot]
//	DIR/base-HEX/      a tree shared by forks: a lower of their overlays, never modified again
//
// The lock ends with the runner. So an unlocked directory with a spec.json is a sandbox without processes. One
// without a spec.json was left by a runner that was killed during creation. [Store.Sweep] removes those and expired
// sandboxes. A directory may disappear while a process waits for its lock. So after locking, the package checks that
// the name still refers to the locked directory.
//
// A sandbox can reach only tree. The package opens nothing in tree except to remove it, by descriptors and without
// following links. It relies on flock(2) and rename(2). It calls fsync for spec.json but not for tree: a power cut
// may lose a sandbox's last writes, but not its identity, unless the sandbox was made in the last tenth of a second.
package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/internal/flock"
	"demesne/runner"
)

// Open opens an existing directory.
func Open(path string) (*Store, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open sandbox store: %w", err)
	}
	return &Store{path: path, root: root}, nil
}

// New creates and locks the directory of a new sandbox. The sandbox exists only after [Dir.Write].
func (d *Store) New(id string) (*Dir, error) {
	b, err := d.making(id)
	if err != nil {
		return nil, fmt.Errorf("store sandbox %q: %w", id, err)
	}
	err = b.root.Mkdir(treeDir, 0o755)
	if err == nil { // now: most sandboxes are prepared before anyone waits for them
		err = b.root.WriteFile(specFile+tmpSuffix, nil, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store sandbox %q: %w", id, err), b.Remove())
	}
	return b, nil
}

// Take locks a persistent sandbox and returns its record. The error is fs.ErrNotExist if it does not exist, and
// [ErrBusy] if another runner has locked it.
func (d *Store) Take(id string) (*Dir, Record, error) {
	b, err := d.lock(id)
	// A reader holds the lock for a moment, and a killed runner may hold it slightly longer.
	for range 1000 {
		if !errors.Is(err, ErrBusy) {
			break
		}
		time.Sleep(2 * time.Millisecond)
		b, err = d.lock(id)
	}
	if err != nil {
		return nil, Record{}, fmt.Errorf("lock sandbox %q: %w", id, err)
	}
	r, err := d.read(id)
	if err == nil {
		err = b.settle(&r)
	}
	if err != nil {
		b.Close()
		return nil, r, fmt.Errorf("lock sandbox %q: %w", id, err)
	}
	return b, r, nil
}

// All returns the sandboxes that have not expired and whose records can be read. A sandbox that a runner has is in the
// state Running.
func (d *Store) All() ([]Record, error) {
	all, err := d.Others(nil)
	return slices.DeleteFunc(all, func(r Record) bool { return r.Info.State == runner.Unreadable }), err
}

// Others is like All but skips the sandboxes with these ids, without reading them. A sandbox whose record cannot be read
// is in the state Unreadable. An error means that the store cannot be listed.
func (d *Store) Others(ids map[string]bool) ([]Record, error) {
	names, err := d.names()
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var all []Record
	for _, name := range names {
		if ids[name] {
			continue
		}
		if r, ok := d.look(name); ok {
			all = append(all, r)
		}
	}
	return all, nil
}

// look returns a sandbox's record, unless the sandbox has expired or the record was never written.
func (d *Store) look(id string) (Record, bool) {
	r, err := d.read(id)
	if d.expired(id) || err != nil && !d.hasSpec(id) {
		return r, false
	}
	if err != nil {
		return Record{Info: runner.Info{ID: id, State: runner.Unreadable}}, true
	}
	f, err := d.open(id, flock.Shared)
	switch {
	case errors.Is(err, ErrBusy) && !r.Snapshot:
		r.Info.State = runner.Running
	case err == nil:
		f.Close()
	}
	return r, true
}

// Find returns the sandbox with that id, or else the newest with that name. Among names it skips the sandboxes with the
// ids of except, without reading them. The error is fs.ErrNotExist if neither exists.
func (d *Store) Find(idOrName string, except map[string]bool) (Record, error) {
	if _, err := hex.DecodeString(idOrName); err == nil && idOrName != "" { // an id, or a name that looks like one
		if r, ok := d.look(idOrName); ok && r.Info.State != runner.Unreadable {
			return r, nil
		}
	}
	var found Record
	all, err := d.Others(except)
	if err != nil {
		return found, err
	}
	for _, r := range all {
		if r.Info.State == runner.Unreadable {
			continue
		}
		if r.Info.ID == idOrName {
			return r, nil
		}
		if idOrName != "" && r.Info.Name == idOrName && r.Info.Created.After(found.Info.Created) {
			found = r
		}
	}
	if found.Info.ID == "" {
		return found, fmt.Errorf("find sandbox %q: %w", idOrName, fs.ErrNotExist)
	}
	return found, nil
}

// Sweep removes expired sandboxes and the remains of killed runners. It continues after an error and returns the ids
// of the sandboxes it removed.
func (d *Store) Sweep() (removed []string, err error) {
	list, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("sweep sandboxes: %w", err)
	}
	var errs []error
	for _, e := range list {
		name := e.Name()
		if !e.IsDir() || strings.HasPrefix(name, basePrefix) {
			continue
		}
		expired := d.expired(name) || d.orphaned(name)
		if !expired && !strings.HasPrefix(name, oldPrefix) && d.hasSpec(name) {
			continue
		}
		b, err := d.lock(name)
		if errors.Is(err, ErrBusy) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		gone := false
		if err == nil {
			gone, err = b.sweep()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep sandbox %q: %w", name, err))
		}
		if gone && expired && !strings.HasPrefix(name, oldPrefix) {
			removed = append(removed, name)
		}
	}
	return removed, errors.Join(append(errs, d.sweepBases(), d.sweepSlots())...)
}

// sweep checks again, under the lock, whether the directory must be removed, and removes it.
func (b *Dir) sweep() (gone bool, err error) {
	if strings.HasPrefix(b.id, oldPrefix) {
		return true, b.removeAs(b.id)
	}
	if !b.d.expired(b.id) && !b.d.orphaned(b.id) && b.d.hasSpec(b.id) {
		return false, b.Close()
	}
	return true, b.remove()
}

func (d *Store) expired(name string) bool {
	st, err := d.root.Lstat(filepath.Join(name, untilFile))
	return err == nil && st.ModTime().Before(time.Now())
}

// orphaned reports whether the sandbox had a maker that is no longer alive.
func (d *Store) orphaned(name string) bool {
	r, err := d.read(name)
	return err == nil && r.Maker != Process{} && !r.Maker.Alive()
}
