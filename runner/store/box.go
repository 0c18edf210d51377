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

	"demesne/rootfs/layers"
)

// Tree is where the directory is that belongs to the sandbox.
func (b *Dir) Tree() string { return filepath.Join(b.d.path, b.id, treeDir) }

// OpenTree opens it, and makes it where a fork took the last one.
func (b *Dir) OpenTree() (*os.File, error) {
	if err := b.root.Mkdir(treeDir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return b.root.Open(treeDir)
}

// Write records the sandbox: from the first time on it is one that is kept.
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

// replace writes a file so that a power cut leaves the old one or the new one.
func (b *Dir) replace(name string, text []byte) error {
	tmp := name + ".tmp"
	f, err := b.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return b.root.Rename(tmp, name)
}

// Renew says when the sandbox expires. It may be called at any time, from any goroutine.
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

// Close leaves the sandbox to whoever takes it next.
func (b *Dir) Close() error { return errors.Join(b.root.Close(), b.lock.Close()) }

// Remove removes the sandbox, and closes b. Where only a part of it can be removed, as by a runner that
// has not the sandbox's ids, it is no sandbox any more, and the next sweep goes on.
func (b *Dir) Remove() error { return errors.Join(b.remove(), b.d.sweepBases()) }

func (b *Dir) remove() error {
	old := oldPrefix + b.id + "-" + strconv.FormatUint(rand.Uint64(), 36) // an earlier one of the name may be there still
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
	if _, err := layers.RemoveAll(at, name); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", b.id, err)
	}
	return nil
}

// ID is the sandbox's.
func (b *Dir) ID() string { return b.id }
