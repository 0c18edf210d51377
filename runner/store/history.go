// [History] records live and recently ended sandboxes of a user, so that commands can report how a sandbox ended:
//
//	DIR/ID.json         a live sandbox
//	DIR/ended/ID.json   one of the last sandboxes that ended
//
// Each file is written atomically and outlives its runner. It names that runner, so [OpenHistory] can mark the
// sandboxes of killed runners as ended. The history is only informative. No sandbox depends on it, failed writes are
// logged, and unreadable files are ignored. A [Store] holds the files of persistent sandboxes.

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

// historyVersion is the format version of the files. Files of another version are ignored.
const historyVersion = 1

// keepEnded is the minimum number of ended sandboxes that can be inspected. A few times as many are usually kept.
const keepEnded = 64

// History is the directory. It is safe for concurrent use by several goroutines and processes.
type History struct {
	mu   sync.Mutex
	path string
	root *os.Root
	self Process // this process
}

// HistoryRecord is the content of a file.
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

// OpenHistory opens an existing directory and marks the sandboxes of dead runners as ended.
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
	tmp := d.self.temporary(i.ID)
	if err := errors.Join(d.root.WriteFile(tmp, b, 0o600), d.giveTo(tmp)); err != nil {
		d.root.Remove(tmp)
		return err
	}
	return d.root.Rename(tmp, fileOf(i))
}

// Self returns the process that writes to this history.
func (d *History) Self() Process { return d.self }

// giveTo gives a file to the directory's owner: real root's reaper writes for runners with another uid.
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

// Ended records the end of a sandbox and sometimes removes the oldest records. Ended records have their own
// directory, so removing old ones requires no parsing.
func (d *History) Ended(i runner.Info) {
	i.State = runner.Ended
	d.Write(i)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.root.Remove(i.ID + ".json")
	if rand.N(keepEnded/4) != 0 {
		return // an occasional cleanup suffices
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

// Find returns the record with that id or name; of several it returns the newest. The error is an [ipc.Error] with
// [ipc.CodeNoSuchSandbox].
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
		return nil, ipc.NoSuchSandbox(idOrName)
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

// temporary returns the name of a temporary file. The name identifies the writing process, so files of a killed runner can be
// told from a live one's.
func (who Process) temporary(id string) string {
	return fmt.Sprintf(".%d.%d.%s.tmp", who.PID, who.Start, id)
}

// bury marks the sandboxes that dead runners left as running, and removes their temporary files.
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
