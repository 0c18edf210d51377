package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// Tree returns the path of the directory with the sandbox's own files.
func (b *Dir) Tree() string { return filepath.Join(b.d.path, b.id, treeDir) }

// OpenTree opens the tree, and creates it if a fork turned the last one into a base.
func (b *Dir) OpenTree() (*os.File, error) {
	if err := b.root.Mkdir(treeDir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return b.root.Open(treeDir)
}

// Write records the sandbox. The first Write makes it a persistent sandbox.
func (b *Dir) Write(r Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Version = version
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record sandbox %q: %w", b.id, err)
	}
	err = b.Renew(r.Info.Expires)
	if err == nil {
		err = b.replace(specFile, text)
	}
	if err != nil {
		return fmt.Errorf("record sandbox %q: %w", b.id, err)
	}
	return nil
}

// syncDelay is the time until the record of a new sandbox is synced. Most sandboxes of one command are removed by then, and
// fsync takes as long as their command.
const syncDelay = 100 * time.Millisecond

// replace writes a file so that a power cut leaves either the old content or the new. A new file is synced later.
func (b *Dir) replace(name string, text []byte) error {
	tmp := name + tmpSuffix
	f, err := b.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	_, old := b.root.Lstat(name)
	fresh := errors.Is(old, os.ErrNotExist)
	if !fresh {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = b.root.Rename(tmp, name); err == nil && fresh {
		b.unsynced = time.AfterFunc(syncDelay, b.sync)
	}
	return err
}

// sync syncs the record, if it is still there.
func (b *Dir) sync() {
	if f, err := b.root.Open(specFile); err == nil {
		f.Sync()
		f.Close()
	}
}

// Renew sets the time at which the sandbox expires. It is safe for concurrent use.
func (b *Dir) Renew(until time.Time) error {
	err := b.root.Chtimes(untilFile, until, until)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := b.root.OpenFile(untilFile, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), b.root.Chtimes(untilFile, until, until))
}

// Close unlocks the sandbox for the next Take.
func (b *Dir) Close() error {
	if b.unsynced != nil && b.unsynced.Stop() {
		b.sync()
	}
	return errors.Join(b.root.Close(), flock.Unlock(b.lock), b.lock.Close())
}

func (b *Dir) remove() error {
	old := oldPrefix + b.id + "-" + strconv.FormatUint(rand.Uint64(), 36) // an earlier one of this name may still exist
	if err := b.d.root.Rename(b.id, old); err != nil {
		b.Close()
		return fmt.Errorf("remove sandbox %q: %w", b.id, err)
	}
	return b.removeAs(old)
}

func (b *Dir) removeAs(name string) error {
	defer b.Close()
	at, err := b.d.root.Open(".")
	if err != nil {
		return err
	}
	defer at.Close()
	if _, err := fsutil.RemoveAll(int(at.Fd()), name); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", b.id, err)
	}
	return nil
}

// ID returns the sandbox's id.
func (b *Dir) ID() string { return b.id }
