package images

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"syscall"

	"demesne/images/oci"
)

// A BlobWriter makes one blob, alone among all processes. What it wrote before it was closed, or
// killed, is there for the next one.
type BlobWriter struct {
	s      *Store
	digest oci.Digest
	size   int64
	f      *os.File // partial/HEX, locked
	hash   hash.Hash
	n      int64 // bytes in f, all of them in hash
	space  *Space
	full   bool // the disk is
	done   bool
}

// Begin starts to write a blob. While another process writes it, Begin waits. The error is
// [ErrPresent] if the blob is there, then or after the wait; from then on it stays until [Store.Add]
// names an image that has it, or [Store.Close]. What is there of the blob is read and hashed: what
// is to be written starts at [BlobWriter.Offset].
func (s *Store) Begin(ctx context.Context, d oci.Digest, size int64) (*BlobWriter, error) {
	if d == "" || size < 0 || size > oci.MaxBlob {
		return nil, fmt.Errorf("begin blob %q: no digest, or a size of %d bytes", d, size)
	}
	w, err := s.begin(ctx, d, size)
	if err != nil {
		return nil, fmt.Errorf("begin blob %s: %w", d, err)
	}
	return w, nil
}

func (s *Store) begin(ctx context.Context, d oci.Digest, size int64) (*BlobWriter, error) {
	switch err := s.pin(ctx, d, size); {
	case err == nil:
		return nil, ErrPresent
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	f, err := lockFile(ctx, s.partialPath(d.Encoded()), os.O_RDWR|os.O_CREATE, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	w := &BlobWriter{s: s, digest: d, size: size, f: f, space: &Space{Dir: s.dir}}
	// Whoever had the lock until now may have finished.
	switch err := s.pin(ctx, d, size); {
	case err == nil:
		w.discard()
		return nil, ErrPresent
	case !errors.Is(err, fs.ErrNotExist):
		w.Close()
		return nil, err
	}
	if err = w.resume(); err == nil {
		err = (&Space{Dir: s.dir}).Take(w.size - w.n)
	}
	if err != nil {
		w.full = noSpace(err)
		w.Close()
		return nil, err
	}
	return w, nil
}

// resume hashes what is there. More than there should be is somebody else's, or another blob's.
func (w *BlobWriter) resume() error {
	w.hash = sha256.New()
	n, err := io.Copy(w.hash, w.f)
	if err != nil {
		return err
	}
	w.n = n
	if n > w.size {
		return w.Restart()
	}
	return nil
}

// Offset returns how much of the blob is there.
func (w *BlobWriter) Offset() int64 { return w.n }

// Restart forgets what is there, for a source that cannot start anywhere else.
func (w *BlobWriter) Restart() error {
	w.hash.Reset()
	w.n = 0
	_, err := w.f.Seek(0, io.SeekStart)
	return errors.Join(err, w.f.Truncate(0))
}

// writeback is after how many bytes the kernel is told to start writing, so that Commit does not
// wait for a whole layer to reach the disk.
const writeback = 8 << 20

// Write appends to the blob. It takes no byte more than the blob has.
func (w *BlobWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.size-w.n {
		return 0, fmt.Errorf("write blob %s: %w: longer than %d bytes", w.digest, ErrCorrupt, w.size)
	}
	n, err := 0, w.space.Take(int64(len(p)))
	if err == nil {
		n, err = w.f.Write(p)
	}
	w.hash.Write(p[:n])
	before := w.n / writeback
	w.n += int64(n)
	if err != nil {
		w.full = noSpace(err)
		return n, fmt.Errorf("write blob %s: %w", w.digest, err)
	}
	if now := w.n / writeback; now > before {
		startWriteback(w.f, before*writeback, (now-before)*writeback)
	}
	return n, nil
}

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// startWriteback is a hint; a file system that does not take it loses nothing.
func startWriteback(f *os.File, off, n int64) {
	const syncFileRangeWrite = 2
	_ = syscall.SyncFileRange(int(f.Fd()), off, n, syncFileRangeWrite)
}

// Commit puts the blob into the store if its size and digest are right; else what was written is
// removed and the error is [ErrCorrupt]. Too short a blob is kept to be resumed. The writer is
// closed either way.
func (w *BlobWriter) Commit(ctx context.Context) error {
	defer w.Close()
	if err := w.commit(ctx); err != nil {
		return fmt.Errorf("commit blob %s: %w", w.digest, err)
	}
	return nil
}

func (w *BlobWriter) commit(ctx context.Context) error {
	if w.n < w.size {
		return fmt.Errorf("%d of %d bytes: %w", w.n, w.size, io.ErrUnexpectedEOF)
	}
	if got := oci.DigestFrom(w.hash.Sum(nil)); got != w.digest {
		w.discard()
		return fmt.Errorf("%w: its digest is %s", ErrCorrupt, got)
	}
	if err := w.s.publish(ctx, w.f, w.digest); err != nil {
		w.full = noSpace(err)
		return err
	}
	w.done = true
	return nil
}

// publish gives a locked file of partial its name among the blobs, and pins it: the file is the
// store's then. Nobody removes blobs while we have the store's lock, so that the moment in which
// flock(2) turns one kind of lock into the other is nobody's chance.
func (s *Store) publish(ctx context.Context, f *os.File, d oci.Digest) error {
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if s.twin(f, d) {
		return nil
	}
	if err := os.Rename(f.Name(), s.blobPath(d)); err != nil {
		return err
	}
	if err := syncDir(s.path("blobs/sha256")); err != nil {
		return err
	}
	if err := flock(f, syscall.LOCK_SH); err != nil {
		return err
	}
	s.addPin(d, f)
	return nil
}

// twin takes the blob that somebody else published since we looked, in place of f: it may be
// pinned, and a pin is on a file, not on a name. The caller has the store's lock.
func (s *Store) twin(f *os.File, d oci.Digest) bool {
	there, err := tryLockFile(s.blobPath(d), os.O_RDONLY, syscall.LOCK_SH)
	if err != nil {
		return false
	}
	a, err1 := f.Stat()
	b, err2 := there.Stat()
	if err1 != nil || err2 != nil || a.Size() != b.Size() {
		there.Close()
		return false
	}
	os.Remove(f.Name())
	f.Close()
	s.addPin(d, there)
	return true
}

// Close gives up, unless Commit was called before. What was written stays to be resumed, but not
// where the disk is full: there it goes.
func (w *BlobWriter) Close() error {
	switch {
	case w.done:
		return nil
	case w.full:
		w.discard()
		return nil
	}
	w.done = true
	return w.f.Close()
}

// discard removes the partial file, under its lock, and lets go.
func (w *BlobWriter) discard() {
	os.Remove(w.f.Name())
	w.f.Close()
	w.done = true
}
