// Package state is what is on disk about the sandboxes of a user, for whoever asks what became of one:
//
//	DIR/ID.json         of one that lives
//	DIR/ended/ID.json   of one of the last that ended
//
// A file is written whole or not at all, and outlives its runner: what was killed says who that
// was, and [OpenHistory] marks its sandboxes as ended. All of it is a convenience. No sandbox needs it,
// what can not be written is logged, and what can not be read does not exist. Files that a sandbox
// keeps are elsewhere, in package keep.
package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"demesne/runner"

	"demesne/runner/ipc"
)

// historyVersion is of the files' format. A file of another version is not read.
const historyVersion = 1

// keepEnded is how many sandboxes that ended can be inspected at the least; a few
// times as many are kept.
const keepEnded = 64

// Store is the directory. It is safe for use by several goroutines, and processes.
type History struct {
	mu   sync.Mutex
	path string
	root *os.Root
	self Process // we
}

// HistoryRecord is a file's content.
type HistoryRecord struct {
	Version int         `json:"version"`
	Runner  Process     `json:"runner"`
	Info    runner.Info `json:"info"`
}

const endedDir = "ended"

func fileOf(i runner.Info) string {
	if i.State == runner.Ended {
		return filepath.Join(endedDir, i.ID+".json")
	}
	return i.ID + ".json"
}

// OpenHistory opens a directory that exists, and marks what dead runners left in it as ended.
func OpenHistory(path string) (*History, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if err := root.Mkdir(endedDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open state: %w", err)
	}
	self, err := Identify(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	d := &History{path: path, root: root, self: self}
	d.bury("its runner was killed")
	return d, nil
}

// Write records a live sandbox. A failure is logged.
func (d *History) Write(i runner.Info) {
	if err := d.put(i); err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: write state of %s: %v\n", i.ID, err)
	}
}

func (d *History) put(i runner.Info) error {
	b, err := json.Marshal(HistoryRecord{historyVersion, d.self, i})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	tmp := temporary(d.self, i.ID)
	if err := errors.Join(d.root.WriteFile(tmp, b, 0o600), d.giveTo(tmp)); err != nil {
		d.root.Remove(tmp)
		return err
	}
	return d.root.Rename(tmp, fileOf(i))
}

// Self is the process that writes here.
func (d *History) Self() Process { return d.self }

// giveTo makes a file the directory's owner's: real root's reaper writes for runners
// that have another id.
func (d *History) giveTo(name string) error {
	st, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	if uid := int(st.Sys().(*syscall.Stat_t).Uid); uid != os.Geteuid() {
		return d.root.Lchown(name, uid, uid)
	}
	return nil
}

// Ended records the end, and forgets the oldest when many have gathered. Records
// that ended lie apart, so that forgetting needs no reading.
func (d *History) Ended(i runner.Info) {
	i.State = runner.Ended
	d.Write(i)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.Remove(i.ID + ".json")
	if rand.N(keepEnded/4) != 0 {
		return // now and then is enough
	}
	entries, err := fs.ReadDir(d.root.FS(), endedDir)
	if err != nil || len(entries) < 2*keepEnded {
		return
	}
	at := func(e fs.DirEntry) int64 {
		st, err := e.Info()
		if err != nil {
			return 0
		}
		return st.ModTime().UnixNano()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(at(b), at(a)) })
	for _, e := range entries[keepEnded:] {
		d.root.Remove(filepath.Join(endedDir, e.Name()))
	}
}

func (d *History) read(name string) (HistoryRecord, error) {
	var r HistoryRecord
	b, err := d.root.ReadFile(name)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, err
	}
	if r.Version != historyVersion {
		return r, fmt.Errorf("version %d is not %d", r.Version, historyVersion)
	}
	return r, nil
}

// Find returns what is recorded under an id or, the newest, under a name. Its error is a
// [ipc.Error], of CodeUnknown.
func (d *History) Find(idOrName string) (*runner.Info, error) {
	var found *runner.Info
	for _, r := range d.all() {
		if r.Info.ID == idOrName || (idOrName != "" && r.Info.Name == idOrName) {
			if found == nil || r.Info.Created.After(found.Created) {
				found = &r.Info
			}
		}
	}
	if found == nil {
		return nil, ipc.Errorf(ipc.NoSuchSandbox, "find sandbox %q: no such sandbox", idOrName)
	}
	return found, nil
}

func (d *History) all() []HistoryRecord {
	var all []HistoryRecord
	for _, dir := range []string{".", endedDir} {
		entries, _ := fs.ReadDir(d.root.FS(), dir)
		for _, e := range entries {
			if r, err := d.read(filepath.Join(dir, e.Name())); err == nil {
				all = append(all, r)
			}
		}
	}
	return all
}

// temporary names a file that is being written by who, so that what a killed runner
// was writing is told from what a live one is.
func temporary(who Process, id string) string {
	return fmt.Sprintf(".%d.%d.%s.tmp", who.PID, who.Start, id)
}

// bury marks what runners that are dead left as running.
func (d *History) bury(why string) {
	entries, _ := fs.ReadDir(d.root.FS(), ".")
	for _, e := range entries {
		who := Process{Boot: d.self.Boot}
		if n, _ := fmt.Sscanf(e.Name(), ".%d.%d.", &who.PID, &who.Start); n == 2 && !who.Alive() {
			d.root.Remove(e.Name())
			continue
		}
		r, err := d.read(e.Name())
		if err != nil || r.Info.State != runner.Running || r.Runner.Alive() {
			continue
		}
		r.Info.State = runner.Ended
		r.Info.PID, r.Info.Execs = 0, 0
		r.Info.Result = &runner.Result{Sandbox: r.Info.ID, ExitCode: 125, Reason: runner.Lost, Detail: why, Out: r.Info.Out}
		d.Ended(r.Info)
	}
}
