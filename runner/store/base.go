package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/flock"
	"demesne/rootfs"
)

// NewBase makes a base from the files of a sandbox that continues to run; fill copies them. Sweep keeps the base
// until release is called; by then a record must name it. The next sweep removes what a killed NewBase left.
func (d *Store) NewBase(fill func(tree *os.File) error) (name string, release func(), err error) {
	id := newHex()
	b, err := d.making(oldPrefix + id)
	if err != nil {
		return "", nil, fmt.Errorf("make base: %w", err)
	}
	name = basePrefix + id
	if err = fill(b.lock); err == nil {
		err = d.root.Rename(b.id, name)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("make base: %w", err), b.removeAs(b.id))
	}
	return name, func() { b.Close() }, nil
}

func newHex() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Pause turns the sandbox's tree into a base of this sandbox and of any fork that gets r.Base. r is the record that
// Take returned; Pause writes it. It takes one rename, whatever the size. A kill at any moment loses nothing, because
// the record names the base before it exists.
func (b *Dir) Pause(r *Record) error {
	if _, err := b.root.Lstat(filepath.Join(treeDir, "up")); errors.Is(err, fs.ErrNotExist) {
		return nil // already a base, and not run since
	}
	r.Freezing = basePrefix + newHex()
	if err := b.Write(*r); err != nil {
		return err
	}
	if err := b.d.root.Rename(filepath.Join(b.id, treeDir), r.Freezing); err != nil {
		return fmt.Errorf("make base of sandbox %q: %w", b.id, err)
	}
	return b.settle(r) // on disk, the next Take does this
}

// settle records whether the tree has become the base that r.Freezing names.
func (b *Dir) settle(r *Record) error {
	if r.Freezing == "" {
		return nil
	}
	_, err := b.d.root.Lstat(r.Freezing)
	switch {
	case err == nil:
		r.Base = append(r.Base[:len(r.Base):len(r.Base)], r.Freezing)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	r.Freezing = ""
	return nil
}

// Held is a set of bases that Sweep does not remove until Close or the end of the process.
type Held struct {
	Uppers []*os.File // O_PATH, in the requested order
	locks  []*os.File
}

// Hold locks bases against removal.
func (b *Dir) Hold(bases []string) (*Held, error) {
	h := &Held{}
	for _, name := range bases {
		if err := h.add(b.d, name); err != nil {
			h.CloseUppers()
			h.Close()
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
	}
	return h, nil
}

func (h *Held) add(d *Store, name string) error {
	if !strings.HasPrefix(name, basePrefix) {
		return fs.ErrInvalid
	}
	f, err := d.open(name, flock.Shared)
	if err != nil {
		return err
	}
	h.locks = append(h.locks, f)
	upper, err := rootfs.KeptUpper(f)
	if err != nil {
		return err
	}
	h.Uppers = append(h.Uppers, upper)
	return nil
}

// CloseUppers closes the uppers' descriptors but keeps the locks.
func (h *Held) CloseUppers() {
	for _, f := range h.Uppers {
		f.Close()
	}
	h.Uppers = nil
}

// Close releases the locks.
func (h *Held) Close() {
	for _, f := range h.locks {
		f.Close()
	}
	h.locks = nil
}

// sweepBases removes the bases that no sandbox uses. It removes none while a record cannot be read, such as one of a
// later version.
func (d *Store) sweepBases() error {
	list, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), basePrefix) })
	if len(list) == 0 {
		return nil
	}
	used := d.used()
	var errs []error
	for _, e := range list {
		if used(e.Name()) {
			continue
		}
		b, err := d.lock(e.Name())
		switch {
		case errors.Is(err, ErrBusy) || errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && d.used()(e.Name()):
			// The check is repeated under the lock. While a fork is written and its source removed, a single check
			// may miss both.
			err = b.Close()
		case err == nil:
			err = b.remove()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// used reads every record, and returns a function that reports whether a sandbox uses a base, or may use it.
func (d *Store) used() func(base string) bool {
	names, err := d.names()
	if err != nil {
		return func(string) bool { return true }
	}
	bases := map[string]bool{}
	for _, id := range names {
		r, err := d.read(id)
		if err != nil && d.hasSpec(id) {
			return func(string) bool { return true }
		}
		bases[r.Freezing] = true
		for _, b := range r.Base {
			bases[b] = true
		}
	}
	return func(base string) bool { return bases[base] }
}

// Remove removes the sandbox and closes b. A runner without the sandbox's ids, for example, can remove only a part. The
// sandbox then no longer exists, and the next sweep continues.
func (b *Dir) Remove() error { return errors.Join(b.remove(), b.d.sweepBases()) }
