package tarball

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
)

// A Part is a staging directory. Its complete content is moved by renames to its place in the parent directory, so a
// name there is a complete file or absent. The Part is flock(2)ed while its maker lives. The next NewPart removes
// Parts of dead makers.
type Part struct {
	Dir    *os.Root
	parent *os.Root
	name   string
	lock   *os.File
}

const partPrefix = ".demesne-cp-"

// NewPart makes a Part in parent. The caller still closes parent.
func NewPart(parent *os.Root) (*Part, error) {
	sweepParts(parent) // failing to remove old Parts must not prevent a copy
	for {
		name := fmt.Sprintf("%s%016x", partPrefix, rand.Uint64())
		if err := parent.Mkdir(name, 0o700); err != nil {
			return nil, err
		}
		lock, err := flock.TryDir(parent, name, flock.Exclusive)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, flock.ErrLocked) { // another process swept it away before it was locked
			continue
		}
		if err != nil {
			return nil, err
		}
		dir, err := parent.OpenRoot(name)
		if err != nil {
			lock.Close()
			return nil, err
		}
		return &Part{dir, parent, name, lock}, nil
	}
}

// sweepParts removes the Parts of dead makers.
func sweepParts(parent *os.Root) error {
	names, err := namesIn(parent)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, partPrefix) {
			continue
		}
		if lock, err := flock.TryDir(parent, name, flock.Exclusive); err == nil {
			parent.RemoveAll(name) // failing to remove it must not prevent a copy
			lock.Close()
		}
	}
	return nil
}

// Deliver moves name in the Part to as in the parent directory. A directory is merged into an existing one.
func (p *Part) Deliver(name, as string) error { return mover{}.move(p.Dir, name, p.parent, as) }

// A mover moves files into directories.
type mover struct {
	links bool // treat a link to a directory at the destination as a directory
}

// move moves name in the directory from to as in the directory to. A sandbox may write to both at the same time. move
// continues in the directories that it opened, even if they have been moved or replaced.
func (m mover) move(from *os.Root, name string, to *os.Root, as string) error {
	look := to.Lstat
	if m.links {
		look = to.Stat
	}
	there, err := look(as)
	if err != nil || !there.IsDir() {
		err := rename(from, name, to, as)
		if m.links && errors.Is(err, unix.EXDEV) {
			err = m.recopy(from, name, to, as)
		}
		return err
	}
	source, err := from.OpenRoot(name)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.OpenRoot(as) // os.Root follows links that do not lead out of it
	if err != nil {
		return err
	}
	defer target.Close()
	if now, err := target.Stat("."); err != nil || !os.SameFile(now, there) {
		return errors.Join(err, fmt.Errorf("%q changed while it was copied to", as))
	}
	return m.moveAll(source, target)
}

// moveAll moves the content of one directory into another.
func (m mover) moveAll(from, to *os.Root) error {
	names, err := namesIn(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := m.move(from, name, to, name); err != nil {
			return err
		}
	}
	return nil
}

// rename calls renameat(2), which does not follow a link at either name.
func rename(from *os.Root, name string, to *os.Root, as string) error {
	a, err := from.Open(".")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := to.Open(".")
	if err != nil {
		return err
	}
	defer b.Close()
	if err := unix.Renameat(int(a.Fd()), name, int(b.Fd()), as); err != nil {
		return &os.LinkError{Op: "renameat", Old: name, New: as, Err: err}
	}
	return nil
}

// recopy copies a file or directory that cannot be renamed, because the destination is on another mount.
func (m mover) recopy(from *os.Root, name string, to *os.Root, as string) error {
	r, w := io.Pipe()
	go func() {
		_, err := Pack(w, from, name, name, Limits{Bytes: math.MaxInt64, Entries: math.MaxInt})
		w.CloseWithError(err)
	}()
	_, err := Unpack(r, to, Options{Links: true, As: as, Limits: Limits{Bytes: math.MaxInt64, Entries: math.MaxInt}})
	r.CloseWithError(err)
	return err
}

func namesIn(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Remove removes the Part, including undelivered content.
func (p *Part) Remove() {
	p.Dir.Close()
	p.parent.RemoveAll(p.name)
	p.lock.Close()
}
