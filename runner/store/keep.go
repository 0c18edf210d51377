// Package keep is the directory of sandboxes whose files outlive their processes:
//
//	DIR/ID/            flock(2)ed by the runner that has the sandbox, from before it is made
//	DIR/ID/spec.json   a [HistoryRecord]; written whole or not at all, as the last step of making one
//	DIR/ID/until       empty; its mtime is when the sandbox expires: renewing that is one system call
//	DIR/ID/tree/       what the sandbox wrote: the upper of its overlay, see package rootfs
//	DIR/.old-…         being removed
//	DIR/base-HEX/      a tree that forks share: it is below theirs, and never changes again
//
// The lock goes with the runner. So a directory that nobody locks is a sandbox without processes,
// or, without a spec.json, what a runner left that was killed while it made one; [Store.Sweep] takes
// that away, and what has expired. As a directory may go while somebody waits for its lock, each lock is
// checked afterwards: the name must still lead to what was locked.
//
// Only tree is within reach of a sandbox, and nothing here looks into it but to remove it, by
// descriptors and following no link. The kernel's part is flock(2) and rename(2). The package calls fsync for
// spec.json and not for tree: a power cut may cost a sandbox its last writes, never its identity.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// historyVersion is of spec.json's format. Another version's sandbox is neither listed nor removed.
const version = 1

const (
	specFile   = "spec.json"
	untilFile  = "until"
	treeDir    = "tree"
	oldPrefix  = ".old-"
	basePrefix = "base-"
)

// ErrBusy says that another runner has the sandbox.
var ErrBusy = errors.New("another runner has it")

// HistoryRecord is what is known of a sandbox that has no processes.
type Record struct {
	Version int         `json:"version"`
	Info    runner.Info `json:"info"`              // as it was; State and Expires are filled in when read
	Map     string      `json:"map"`               // names the id map that its files have
	Init    Process     `json:"init"`              // its last PID 1
	Base    []string    `json:"base,omitempty"`    // names of base-HEX that are below its tree, the lowest first
	Secrets []string    `json:"secrets,omitempty"` // names of the secrets it was started with; no file has their values

	// Freezing is a base that its tree is about to become, or has: whether it is there decides.
	Freezing string `json:"freezing,omitempty"`
	// Quiet says that the next start loses no process: nothing ran in it when it was stopped, or it is a fork that never ran.
	Quiet bool `json:"quiet,omitempty"`
	// Unsettled is since when its /out may have files of its that are not the caller's yet; nil: it has none.
	Unsettled *time.Time `json:"unsettled,omitempty"`
	// Snapshot says that it never runs, only its forks do, and that it does not expire.
	Snapshot bool `json:"snapshot,omitempty"`
	// Maker is of what is there for a moment only: the runner without which it is swept away.
	Maker Process `json:"maker,omitzero"`
}

// Store is a directory of sandboxes. It has no state of its own, and is safe for any number of
// goroutines and processes.
type Store struct {
	path string
	root *os.Root
}

// OpenHistory opens a directory that is there.
func Open(path string) (*Store, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open kept sandboxes: %w", err)
	}
	return &Store{path: path, root: root}, nil
}

// Store is one sandbox's directory, locked until Close.
type Dir struct {
	d    *Store
	id   string
	lock *os.File
	root *os.Root
	mu   sync.Mutex // of Write
}

// New makes the directory of a new sandbox, which is none before [Store.Write].
func (d *Store) New(id string) (*Dir, error) {
	b, err := d.making(id)
	if err != nil {
		return nil, fmt.Errorf("keep sandbox %q: %w", id, err)
	}
	if err := b.root.Mkdir(treeDir, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("keep sandbox %q: %w", id, err), b.Remove())
	}
	return b, nil
}

// making makes a directory and locks it.
func (d *Store) making(name string) (*Dir, error) {
	for try := range 1000 {
		if err := d.root.Mkdir(name, 0o700); err != nil && (try == 0 || !errors.Is(err, fs.ErrExist)) {
			return nil, err
		}
		b, err := d.lock(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrBusy) { // a sweep was faster than the lock
			time.Sleep(time.Millisecond)
			continue
		}
		return b, err
	}
	return nil, ErrBusy
}

// Take locks a sandbox that was kept. The error is fs.ErrNotExist if there is none, and [ErrBusy] if another
// runner has it.
func (d *Store) Take(id string) (*Dir, Record, error) {
	b, err := d.lock(id)
	// Who only looks has the lock for a moment, and who was killed for one more.
	for range 1000 {
		if !errors.Is(err, ErrBusy) {
			break
		}
		time.Sleep(2 * time.Millisecond)
		b, err = d.lock(id)
	}
	if err != nil {
		return nil, Record{}, fmt.Errorf("take sandbox %q: %w", id, err)
	}
	r, err := d.read(id)
	if err == nil {
		err = b.settle(&r)
	}
	if err != nil {
		b.Close()
		return nil, r, fmt.Errorf("take sandbox %q: %w", id, err)
	}
	return b, r, nil
}

// lock locks a directory, and makes sure that the name still leads to it.
func (d *Store) lock(name string) (*Dir, error) {
	f, err := d.open(name, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	root, err := d.root.OpenRoot(name)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Dir{d: d, id: name, lock: f, root: root}, nil
}

func (d *Store) open(name string, how int) (*os.File, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err == nil {
		err = d.leads(name, f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *Store) leads(name string, f *os.File) error {
	a, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	b, err := f.Stat()
	if err == nil && !os.SameFile(a, b) {
		err = fs.ErrNotExist
	}
	return err
}

// read returns a sandbox's record, as it is without processes.
func (d *Store) read(id string) (Record, error) {
	var r Record
	b, err := d.root.ReadFile(filepath.Join(id, specFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read %q: %w", specFile, err)
	}
	if r.Version != version || r.Info.ID != id {
		return r, fmt.Errorf("read %q: version %d of %q", specFile, r.Version, r.Info.ID)
	}
	st, err := d.root.Stat(filepath.Join(id, untilFile))
	if err != nil {
		return r, err
	}
	r.Info.State, r.Info.PID, r.Info.Execs, r.Info.Expires = runner.Stopped, 0, 0, st.ModTime()
	if r.Snapshot {
		r.Info.State, r.Info.Expires = runner.Snapshot, time.Time{}
	}
	return r, nil
}

// All returns the sandboxes that have not expired. One that a runner has is in the state Running.
func (d *Store) All() []Record { return d.Others(nil) }

// Others is All without the sandboxes with these ids, of which nothing is read.
func (d *Store) Others(ids map[string]bool) []Record {
	var all []Record
	for _, name := range d.names() {
		if ids[name] {
			continue
		}
		r, err := d.read(name)
		if err != nil || d.expired(name) {
			continue
		}
		f, err := d.open(name, unix.LOCK_SH)
		switch {
		case errors.Is(err, ErrBusy) && !r.Snapshot:
			r.Info.State = runner.Running
		case err == nil:
			f.Close()
		}
		all = append(all, r)
	}
	return all
}

// Find returns the sandbox with that id or, the newest, with that name. The error is fs.ErrNotExist
// if there is none.
func (d *Store) Find(idOrName string) (Record, error) {
	var found Record
	for _, r := range d.All() {
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

func (d *Store) names() []string {
	list, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range list {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), basePrefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// Sweep removes what has expired and what killed runners left. It goes on after an error, and returns the ids
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
	return removed, errors.Join(append(errs, d.sweepBases())...)
}

// sweep removes what is still to be removed, now that it is locked.
func (b *Dir) sweep() (gone bool, err error) {
	if strings.HasPrefix(b.id, oldPrefix) {
		return true, b.removeAs(b.id)
	}
	if !b.d.expired(b.id) && !b.d.orphaned(b.id) && b.d.hasSpec(b.id) {
		return false, b.Close()
	}
	return true, b.remove()
}

func (d *Store) hasSpec(name string) bool {
	_, err := d.root.Lstat(filepath.Join(name, specFile))
	return err == nil
}

func (d *Store) expired(name string) bool {
	st, err := d.root.Lstat(filepath.Join(name, untilFile))
	return err == nil && st.ModTime().Before(time.Now())
}

// orphaned is of what had a maker, and has none any more.
func (d *Store) orphaned(name string) bool {
	r, err := d.read(name)
	return err == nil && r.Maker != Process{} && !r.Maker.Alive()
}
