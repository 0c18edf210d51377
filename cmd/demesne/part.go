package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// part is a directory in which something is put together that then goes, by renames, to its place beside it: a name there
// is a whole file, or none. It is flock(2)ed while its maker lives; what one left that was killed, the next one removes.
type part struct {
	parent, dir *os.Root
	name        string
	lock        *os.File
}

const partPrefix = ".demesne-cp-"

// newPart makes one in a directory, which stays the caller's to close.
func newPart(parent *os.Root) (*part, error) {
	if err := sweepParts(parent); err != nil {
		return nil, err
	}
	for {
		name := fmt.Sprintf("%s%016x", partPrefix, rand.Uint64())
		if err := parent.Mkdir(name, ownerOnly); err != nil {
			return nil, err
		}
		lock, err := lockPart(parent, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) { // somebody swept it away before it was locked
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
		return &part{parent, dir, name, lock}, nil
	}
}

// lockPart locks a directory that the name still leads to.
func lockPart(parent *os.Root, name string) (*os.File, error) {
	f, err := parent.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(fdOf(f), unix.LOCK_EX|unix.LOCK_NB)
	var now, then fs.FileInfo
	if err == nil {
		now, err = parent.Lstat(name)
	}
	if err == nil {
		then, err = f.Stat()
	}
	if err == nil && !os.SameFile(now, then) {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepParts removes those whose makers are dead.
func sweepParts(parent *os.Root) error {
	names, err := namesIn(parent)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, partPrefix) {
			continue
		}
		if lock, err := lockPart(parent, name); err == nil {
			parent.RemoveAll(name) // what cannot go is no reason not to copy
			lock.Close()
		}
	}
	return nil
}

// deliver moves name in the part to the name as beside it. A directory is added to one that is there.
func (p *part) deliver(name, as string) error { return move(p.dir, name, p.parent, as) }

// move moves what is name in from itself to the name as in to itself. A sandbox may be writing to either: it goes on in the directories
// that were looked at, wherever they are by now, and not in what has been put in their place.
func move(from *os.Root, name string, to *os.Root, as string) error {
	there, err := to.Lstat(as)
	if err != nil || !there.IsDir() {
		return rename(from, name, to, as)
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
	names, err := namesIn(source)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := move(source, name, target, name); err != nil {
			return err
		}
	}
	return nil
}

// rename is renameat(2), which follows no link that has one of the names.
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
	if err := unix.Renameat(fdOf(a), name, fdOf(b), as); err != nil {
		return &os.LinkError{Op: "renameat", Old: name, New: as, Err: err}
	}
	return nil
}

func namesIn(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (p *part) remove() {
	p.dir.Close()
	p.parent.RemoveAll(p.name)
	p.lock.Close()
}
