package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/internal/flock"
	"demesne/runner"
)

// version is the format version of spec.json. A sandbox with another version is listed as unreadable, and not removed.
const version = 1

const (
	specFile   = "spec.json"
	untilFile  = "until"
	tmpSuffix  = ".tmp" // of a file that is being written
	treeDir    = "tree"
	oldPrefix  = ".old-"
	basePrefix = "base-"
)

// ErrBusy is the error for a sandbox that another runner has.
var ErrBusy = errors.New("another runner uses it")

// Record describes a sandbox that has no processes.
type Record struct {
	Version int         `json:"version"`
	Info    runner.Info `json:"info"`              // its last state; State and Expires are set on reading
	Map     string      `json:"map"`               // identifies the id map of its files
	Init    Process     `json:"init"`              // its last PID 1
	Base    []string    `json:"base,omitempty"`    // names of the base-HEX below its tree, the lowest first
	Secrets []string    `json:"secrets,omitempty"` // names of the secrets it was started with; no file holds their values

	// Freezing names the base that its tree is becoming. If the base exists, the rename has happened.
	Freezing string `json:"freezing,omitempty"`
	// Quiet means that the next start loses no process. The sandbox ran none when it was stopped, or it is a fork that
	// never ran.
	Quiet bool `json:"quiet,omitempty"`
	// Unsettled is the time since when its /out may contain files that the caller does not own yet; nil: none.
	Unsettled *time.Time `json:"unsettled,omitempty"`
	// Snapshot marks a snapshot: it never runs, only its forks do, and it does not expire.
	Snapshot bool `json:"snapshot,omitempty"`
	// Maker is set for an ephemeral snapshot or fork, and for a sandbox that builds an image. Sweep removes it once this runner is gone.
	Maker Process `json:"maker,omitzero"`
}

// Store is a directory of sandboxes. It has no state of its own and is safe for concurrent use by any number of
// goroutines and processes.
type Store struct {
	path string
	root *os.Root
}

// Dir is the directory of one sandbox, locked until Close.
type Dir struct {
	d    *Store
	id   string
	lock *os.File
	root *os.Root
	mu   sync.Mutex // held by Write

	unsynced *time.Timer // syncs the record of a new sandbox; nil: it had one
}

// making creates a directory and locks it.
func (d *Store) making(name string) (*Dir, error) {
	for try := range 1000 {
		if err := d.root.Mkdir(name, 0o700); err != nil && (try == 0 || !errors.Is(err, fs.ErrExist)) {
			return nil, err
		}
		b, err := d.lock(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrBusy) { // a sweep removed or locked it first
			time.Sleep(time.Millisecond)
			continue
		}
		return b, err
	}
	return nil, ErrBusy
}

// lock locks a directory and verifies that the name still refers to it.
func (d *Store) lock(name string) (*Dir, error) {
	f, err := d.open(name, flock.Exclusive)
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

func (d *Store) open(name string, how flock.Mode) (*os.File, error) {
	f, err := flock.TryDir(d.root, name, how)
	if errors.Is(err, flock.ErrLocked) {
		return nil, ErrBusy
	}
	return f, err
}

// read returns a sandbox's record, in the state without processes.
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

func (d *Store) names() (names []string, err error) {
	all, err := d.entries()
	if errors.Is(err, fs.ErrNotExist) { // the directory was removed, with all sandboxes
		return nil, nil
	}
	for _, name := range all {
		if !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, basePrefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// entries returns the names in the directory, sorted. [fs.ReadDir] would examine each of them, and each create call
// lists thousands.
func (d *Store) entries() ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// hasSpec reports whether the sandbox has, or may have, a record. A power cut may leave an empty one of a new sandbox.
func (d *Store) hasSpec(name string) bool {
	st, err := d.root.Lstat(filepath.Join(name, specFile))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
	}
	return st.Size() > 0
}
