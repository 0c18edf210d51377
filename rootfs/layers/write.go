package layers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// poll is the interval at which a writer checks whether another writer of the same layer has finished. A wait in
// flock(2) could not be cancelled.
const poll = 20 * time.Millisecond

// A Writer fills one layer. Exactly one of [Publish] and Abort ends it. If its process dies, the next writer of the
// layer or a sweep removes its files.
type Writer struct {
	// Dir is an empty directory for the layer's files, mode 0755 until the layer sets another.
	Dir string
	// Disk is the size of the layer on disk in bytes, for [All]; the code that fills Dir counts it.
	Disk int64

	at, tree dir
	name     string
}

// Begin starts to write a layer. Only one process at a time writes a layer: Begin waits for another writer. It
// returns [ErrPresent] if the layer is in the cache, at once or after the wait.
func (c Cache) Begin(ctx context.Context, id DiffID) (*Writer, error) {
	name, err := id.encoded()
	if err != nil {
		return nil, err
	}
	at, err := c.create()
	if err != nil {
		return nil, err
	}
	w := &Writer{Dir: c.Dir() + "/" + newPrefix + name + "/" + fsDir, at: at, name: name}
	if err := w.begin(ctx, id); err != nil {
		at.Close()
		return nil, fmt.Errorf("begin layer %q: %w", id, err)
	}
	return w, nil
}

func (w *Writer) begin(ctx context.Context, id DiffID) error {
	for {
		if w.at.has(id) {
			return ErrPresent
		}
		err := w.take()
		if err == nil && w.at.has(id) { // published between the check and the lock
			return errors.Join(ErrPresent, w.drop())
		}
		if err == nil {
			return w.clear()
		}
		// ENOENT: its writer published or dropped it in between.
		if !errors.Is(err, flock.ErrLocked) && !errors.Is(err, unix.ENOENT) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

// take makes the directory, or finds the one a killed writer left, and locks it.
func (w *Writer) take() error {
	name := newPrefix + w.name
	if err := unix.Mkdirat(w.at.fd(), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %q: %w", name, err)
	}
	tree, err := w.at.lock(name, flock.Try, flock.Exclusive)
	if err != nil {
		return err
	}
	w.tree = tree
	return nil
}

// clear empties the directory and makes the subdirectory for the layer's files.
func (w *Writer) clear() error {
	if _, err := fsutil.Empty(w.tree.File); err != nil {
		return errors.Join(err, w.tree.Close())
	}
	err := unix.Mkdirat(w.tree.fd(), fsDir, 0o755)
	if err == nil {
		err = unix.Fchmodat(w.tree.fd(), fsDir, 0o755, 0) // undoes the umask
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make %q: %w", fsDir, err), w.drop())
	}
	return nil
}

// Publish makes the writers' Dirs layers of the cache, and ends the writers; all must be of one cache. First it
// flushes their data to disk, for all of them at once (syncfs(2) also flushes other data of the file system). Then
// it renames each. After a power cut a layer is complete or missing. On an error Publish aborts the writers that
// were not yet renamed.
func Publish(writers ...*Writer) (err error) {
	if len(writers) == 0 {
		return nil
	}
	for _, w := range writers {
		err = errors.Join(err, w.tree.write(sizeFile, strconv.FormatInt(w.Disk, 10)))
	}
	if err == nil {
		err = unix.Syncfs(writers[0].tree.fd())
	}
	for _, w := range writers {
		if err == nil {
			err = w.at.rename(newPrefix+w.name, w.name)
		}
		if err != nil {
			err = errors.Join(err, w.drop())
		}
		w.tree.Close()
		w.at.Close()
	}
	if err != nil {
		return fmt.Errorf("publish layers: %w", err)
	}
	return nil
}

// Abort removes the files written so far.
func (w *Writer) Abort() error {
	defer w.at.Close()
	if err := w.drop(); err != nil {
		return fmt.Errorf("abort layer: %w", err)
	}
	return nil
}

// drop removes the directory and unlocks it.
func (w *Writer) drop() error {
	_, err := removeLocked(w.at, newPrefix+w.name, w.tree)
	w.tree.Close()
	return err
}
