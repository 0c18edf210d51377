// Package cow keeps the changes apart that a sandbox makes in directories of this machine, and applies them later.
//
// A mount with mode cow is an overlay: the sandbox sees a directory and writes to an upper below ~/.demesne/changes. A [Set]
// is the record of such mounts of one sandbox. It lists what differs, as edits and as hunks of text, makes chosen edits in
// the directories, or drops them.
//
// An upper comes from a sandbox, and is hostile: package upper reads it, and decides what can be applied. This package adds
// the record. It opens directories without following links, refuses a directory that is another one by now, and applies
// nothing while a sandbox uses the changes (flock(2)). It prints nothing and asks no question: see [Applier].
package cow

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/client"
)

// Set holds the changes of one sandbox in directories with mode cow, while the directories stay as they are:
//
//	ROOT/ID/changes.json    the directories, and the caller's files as the changes were first looked at
//	ROOT/ID/0/up, 0/work    the upper of the first directory; 0 is locked while a sandbox uses it
//
// A sandbox can write below the numbers only. One process at a time uses the record.
type Set struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox,omitempty"` // empty: it was not made
	Name    string    `json:"name,omitempty"`    // of the sandbox
	Created time.Time `json:"created"`
	Dirs    []*Dir    `json:"dirs"`

	path string // absolute, without symbolic links
}

// Dir is one of the directories.
type Dir struct {
	Path   string      `json:"path"` // absolute, without symbolic links
	Dev    uint64      `json:"dev"`
	Ino    uint64      `json:"ino"`
	Since  time.Time   `json:"since"` // by the clock of its file system
	States []fileState `json:"states,omitempty"`
}

// fileState is an entry of [upper.Over.States]. A path may have any bytes.
type fileState struct {
	Path  []byte      `json:"path"`
	State upper.State `json:"state"`
}

// Edit is one change. Path is absolute.
type Edit struct {
	upper.Edit
	Path   string
	dir    int
	Parent bool // of another edit that was chosen
}

// recordName is the name of the record, and maxRecord the bound of its size.
const (
	recordName = "changes.json"
	maxRecord  = 256 << 20
)

// New makes a directory for the changes of mounts, and sets their Upper. It returns nil without mounts.
func New(mounts []*runner.Mount) (c *Set, err error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	c = &Set{ID: fmt.Sprintf("%08x", rand.Uint32()), Created: time.Now().UTC().Truncate(time.Second)}
	defer func() {
		if err != nil {
			c.Undo()
			c, err = nil, fmt.Errorf("keep changes apart: %w", fsutil.Reason(err))
		}
	}()
	root, err := client.ChangesRoot()
	if err != nil {
		return c, err
	}
	c.path = filepath.Join(root, c.ID)
	if err := errors.Join(os.MkdirAll(root, 0o700), os.Mkdir(c.path, 0o700)); err != nil {
		return c, err
	}
	for _, m := range mounts {
		m.Upper = c.upper(len(c.Dirs))
		d, err := newDir(m.Source, m.Upper)
		if err != nil {
			return c, err
		}
		c.Dirs = append(c.Dirs, d)
	}
	return c, c.save()
}

func newDir(source, up string) (*Dir, error) {
	if err := os.Mkdir(up, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(source)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	d := &Dir{Path: source, Dev: st.Dev, Ino: st.Ino}
	if d.Since, err = clockOf(f, up); err != nil {
		return nil, err
	}
	return d, nil
}

// clockOf returns the time by the clock of dir's file system. That takes a new file in dir, which the caller may not be
// allowed to make: the clock of the changes' own directory then has to do.
func clockOf(dir *os.File, other string) (time.Time, error) {
	for _, name := range []string{dir.Name(), other} {
		fd, err := unix.Open(name, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		return time.Unix(st.Ctim.Unix()).UTC(), err
	}
	return time.Now().UTC(), nil
}

func (c *Set) upper(i int) string { return filepath.Join(c.path, fmt.Sprint(i)) }

// save replaces the record.
func (c *Set) save() error {
	return fsutil.WriteRecord(filepath.Join(c.path, recordName), c, maxRecord)
}

// Made records the sandbox that has the changes. c may be nil.
func (c *Set) Made(id, name string) error {
	if c == nil {
		return nil
	}
	c.Sandbox, c.Name = id, name
	return c.save()
}

// Undo removes changes that no sandbox was made for. c may be nil.
func (c *Set) Undo() {
	if c == nil || c.path == "" || c.Sandbox != "" {
		return
	}
	c.Discard() // a failure leaves changes that demesne diff lists
}

// UsedError reports that a sandbox is using changes.
type UsedError struct{ Sandbox string }

func (*UsedError) Error() string { return "a sandbox is using them" }

// UsedBy returns the id of the sandbox.
func (e *UsedError) UsedBy() string { return e.Sandbox }

// ErrNone reports that no changes have that id, and ErrChoose that an id must choose some.
var (
	ErrNone   = errors.New("no such changes")
	ErrChoose = errors.New("needs the id of changes")
)

// Only returns the changes that are kept apart if there is exactly one set of them.
func Only() (*Set, error) {
	all, err := All()
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("no changes are kept apart: %w", ErrChoose)
	case len(all) > 1:
		return nil, fmt.Errorf("%d sets of changes are kept apart: %w", len(all), ErrChoose)
	}
	return all[0], nil
}

// IsID reports whether a word has the form of an id.
func IsID(word string) bool {
	b, err := hex.DecodeString(word)
	return err == nil && len(b) == 4
}

// Find returns the changes of that id, or of the sandbox with that id or name.
func Find(id string) (*Set, error) {
	if IsID(id) {
		root, err := client.ChangesRoot()
		if err != nil {
			return nil, err
		}
		if c, err := read(filepath.Join(root, id)); !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	all, err := All()
	for _, c := range slices.Backward(all) {
		if id != "" && (c.Sandbox == id || c.Name == id) {
			return c, nil
		}
	}
	return nil, errors.Join(err, fmt.Errorf("changes %q: %w", id, ErrNone))
}

// All returns all changes, the earliest first.
func All() (all []*Set, err error) {
	root, err := client.ChangesRoot()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		c, rerr := read(filepath.Join(root, e.Name()))
		if errors.Is(rerr, fs.ErrNotExist) {
			continue // being made, or removed
		}
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Set) int { return a.Created.Compare(b.Created) })
	return all, err
}

func read(path string) (*Set, error) {
	c := &Set{}
	if err := fsutil.ReadRecord(filepath.Join(path, recordName), c, maxRecord); err != nil {
		return nil, fmt.Errorf("read changes %q: %w", filepath.Base(path), fsutil.Reason(err))
	}
	c.ID, c.path = filepath.Base(path), path
	return c, nil
}

// overs are the opened directories of changes.
type overs struct {
	changes *Set
	all     []*upper.Over // nil: the sandbox wrote nothing there
	files   []*os.File
}

func (o *overs) close() {
	for _, f := range o.files {
		f.Close()
	}
}

// open opens and locks the directories. It refuses changes that a sandbox is using.
func (c *Set) open() (o *overs, err error) {
	o = &overs{changes: c}
	for i, d := range c.Dirs {
		over, err := o.one(c.upper(i), d)
		if err != nil {
			o.close()
			return nil, fmt.Errorf("changes %q: %w", c.ID, err)
		}
		o.all = append(o.all, over)
	}
	return o, nil
}

func (o *overs) one(up string, d *Dir) (*upper.Over, error) {
	top, err := openPlain(up)
	if err != nil {
		return nil, err
	}
	o.files = append(o.files, top)
	if err := flock.Try(top, flock.Exclusive); errors.Is(err, flock.ErrLocked) {
		return nil, &UsedError{o.changes.Sandbox}
	}
	dir, err := openPlain(d.Path)
	if err != nil {
		return nil, fmt.Errorf("directory %q: %w", d.Path, fsutil.Reason(err))
	}
	o.files = append(o.files, dir)
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Dev != d.Dev || st.Ino != d.Ino {
		return nil, fmt.Errorf("directory %q: it is another one by now", d.Path)
	}
	fd, err := unix.Openat(int(top.Fd()), "up", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "up")
	o.files = append(o.files, f)
	over := &upper.Over{Up: f, Dir: dir, Since: d.Since, States: map[string]upper.State{}}
	for _, s := range d.States {
		over.States[string(s.Path)] = s.State
	}
	return over, nil
}

// edits returns the edits of all directories, and records the state of the caller's files.
func (o *overs) edits() (edits []Edit, all bool, err error) {
	all = true
	for i, over := range o.all {
		if over == nil {
			continue
		}
		found, complete, err := over.Edits()
		if err != nil {
			return nil, false, fmt.Errorf("changes %q: %w", o.changes.ID, err)
		}
		all = all && complete
		for _, e := range found {
			edits = append(edits, Edit{Edit: e, Path: filepath.Join(o.changes.Dirs[i].Path, e.Path), dir: i})
		}
	}
	return edits, all, o.save()
}

func (o *overs) save() error {
	for i, over := range o.all {
		if over == nil {
			continue
		}
		d := o.changes.Dirs[i]
		d.States = d.States[:0]
		for p, s := range over.States {
			if s != "" { // a missing file needs no record: a later one has a later ctime
				d.States = append(d.States, fileState{[]byte(p), s})
			}
		}
	}
	return o.changes.save()
}

// Edits returns what the sandbox changed. If all is false, there were too many changes to return them all.
func (c *Set) Edits() (edits []Edit, all bool, err error) {
	o, err := c.open()
	if err != nil {
		return nil, false, err
	}
	defer o.close()
	return o.edits()
}

// Discard drops the changes. A persistent sandbox keeps their directory, and sees the caller's directories as they are
// when it is started again; the record goes when that sandbox is removed.
func (c *Set) Discard() error {
	for i := range c.Dirs {
		if err := c.discard(i); err != nil {
			return fmt.Errorf("changes %q: %w", c.ID, err)
		}
	}
	if c.Persistent() {
		for _, d := range c.Dirs {
			d.States = nil
		}
		return c.save()
	}
	root, err := openPlain(filepath.Dir(c.path))
	if err != nil {
		return fmt.Errorf("changes %q: %w", c.ID, err)
	}
	defer root.Close()
	_, err = fsutil.RemoveAll(int(root.Fd()), c.ID)
	return err
}

// Persistent reports whether the sandbox can be started again, and then needs the directory of its changes.
func (c *Set) Persistent() bool {
	root, err := client.SandboxRoot()
	return err == nil && c.Sandbox != "" && fsutil.Exists(filepath.Join(root, c.Sandbox))
}

func (c *Set) discard(i int) error {
	top, err := openPlain(c.upper(i))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	if errors.Is(flock.Try(top, flock.Exclusive), flock.ErrLocked) {
		return &UsedError{c.Sandbox}
	}
	_, err = fsutil.Empty(top)
	return err
}

// DropEmpty drops the changes of a removed sandbox if nothing changed. Others remain for apply. c may be nil.
func (c *Set) DropEmpty() {
	if c == nil {
		return
	}
	if edits, all, err := c.Edits(); err == nil && all && len(edits) == 0 {
		c.Discard() // a failure leaves changes that demesne diff lists
	}
}

// openPlain opens a directory, and follows no symbolic link: a newer one may come from a sandbox.
func openPlain(path string) (*os.File, error) {
	fd, err := fsutil.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
