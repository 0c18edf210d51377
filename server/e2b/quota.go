package e2b

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Quota has the ceilings of what a namespace may store. A field that is 0 is not a ceiling.
type Quota struct {
	Bytes     int64 // of volumes, images of templates and files for their builds
	Files     int64 // of the same, with directories
	Volume    int64 // bytes of one volume; a sandbox that mounts it has this disk limit
	Volumes   int64
	Snapshots int64
	Templates int64
}

// Stored is what a namespace stores.
type Stored struct{ Bytes, Files, Volumes, Snapshots, Templates int64 }

// entryCost is charged for each file and directory, in addition to a file's bytes: names and inodes take space too.
const entryCost = 4096

// quotaError reports a ceiling.
type quotaError struct {
	what string
	most int64
}

func (e quotaError) Error() string {
	return fmt.Sprintf("the namespace stores too much: at most %d %s", e.most, e.what)
}

// Unwrap makes it the error of a full disk.
func (quotaError) Unwrap() error { return syscall.EDQUOT }

// ledger counts what a namespace stores. A write is taken before it happens, under one lock, so that concurrent requests
// cannot pass a ceiling together. What a write did not need is given back after it. The next
// server measures the volumes at its start. What an image counts is in its record: see [built].
type ledger struct {
	most Quota

	mu  sync.Mutex
	has Stored
}

// take counts n, or fails without an effect if that passed a ceiling.
func (l *ledger) take(n Stored) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []struct {
		what         string
		n, has, most int64
	}{
		{"bytes", n.Bytes, l.has.Bytes, l.most.Bytes}, {"files and directories", n.Files, l.has.Files, l.most.Files},
		{"volumes", n.Volumes, l.has.Volumes, l.most.Volumes}, {"snapshots", n.Snapshots, l.has.Snapshots, l.most.Snapshots},
		{"templates", n.Templates, l.has.Templates, l.most.Templates},
	} {
		if c.n > 0 && c.most > 0 && c.n > c.most-c.has {
			return quotaError{c.what, c.most}
		}
	}
	l.has = l.has.plus(n)
	return nil
}

// add counts n without a look at the ceilings. n may be negative.
func (l *ledger) add(n Stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.has = l.has.plus(n)
}

// reserve takes the bytes of one volume, or what is left, for an image that is being built; 0: there is no ceiling.
func (l *ledger) reserve() (n int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most.Bytes <= 0 {
		return 0, nil
	}
	n = l.most.Bytes - l.has.Bytes
	if l.most.Volume > 0 {
		n = min(n, l.most.Volume)
	}
	if n <= 0 {
		return 0, quotaError{"bytes", l.most.Bytes}
	}
	l.has.Bytes += n
	return n, nil
}

// stored returns what is counted.
func (l *ledger) stored() Stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.has
}

func (s Stored) plus(n Stored) Stored {
	return Stored{s.Bytes + n.Bytes, s.Files + n.Files, s.Volumes + n.Volumes, s.Snapshots + n.Snapshots, s.Templates + n.Templates}
}

func (s Stored) negative() Stored {
	return Stored{-s.Bytes, -s.Files, -s.Volumes, -s.Snapshots, -s.Templates}
}

// costOf returns what a file or directory counts.
func costOf(st fs.FileInfo) Stored {
	n := Stored{Bytes: entryCost, Files: 1}
	if st.Mode().IsRegular() {
		n.Bytes += st.Size()
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			n.Bytes = max(n.Bytes, sys.Blocks*512)
		}
	}
	return n
}

// Bounds of one measurement. A workload chooses how deep and large its directories are.
const (
	measureDepth = 64
	maxMeasure   = 1 << 20
)

var errMeasure = errors.New("too many or too deep directories to count")

// measure returns what is below a directory, without the directory itself. With errMeasure the result is a part of it.
func measure(root *os.Root, name string) (all Stored, err error) {
	return measureIn(root, name, 0, maxMeasure)
}

func measureIn(root *os.Root, name string, depth int, most int64) (all Stored, err error) {
	d, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return all, err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		for _, n := range names {
			st, err := root.Lstat(path.Join(name, n))
			if err != nil {
				continue // it was removed
			}
			if all = all.plus(costOf(st)); all.Files > most || st.IsDir() && depth == measureDepth {
				return all, errMeasure
			}
			if !st.IsDir() {
				continue
			}
			more, err := measureIn(root, path.Join(name, n), depth+1, most-all.Files)
			if all = all.plus(more); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return all, err
			}
		}
	}
}

// metered counts the bytes that it passes on, each before it is written.
type metered struct {
	to   io.Writer
	take func(int64) error
}

func (m metered) Write(b []byte) (int, error) {
	if err := m.take(int64(len(b))); err != nil {
		return 0, err
	}
	return m.to.Write(b)
}
