package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
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
	dir, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
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
func (p *part) deliver(name, as string) error {
	return p.move(path.Join(p.name, name), as)
}

func (p *part) move(from, to string) error {
	there, err := p.parent.Lstat(to)
	if err != nil || !there.IsDir() {
		return p.parent.Rename(from, to)
	}
	names, err := p.list(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := p.move(path.Join(from, name), path.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) list(dir string) ([]string, error) {
	f, err := p.parent.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
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
