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
	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// A BlobWriter writes one blob, and holds an exclusive lock against other processes. The bytes
// written before a Close or a kill are kept, so that the next writer resumes there.
type BlobWriter struct {
	s      *Store
	digest oci.Digest
	size   int64
	f      *os.File // partial/HEX, locked
	hash   hash.Hash
	n      int64 // bytes in f, all of them in hash
	space  *Space
	full   bool // the disk is full
	done   bool
}

// Begin starts to write a blob. It waits while another process writes the same blob. It returns
// [ErrPresent] if the store has the blob, before or after the wait. The blob is then kept until
// [Store.Add] names an image that contains it, or [Store.Close]. Begin hashes the bytes of an
// earlier attempt; the next write goes to [BlobWriter.Offset].
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
	f, err := flock.Open(ctx, s.partialPath(d.Encoded()), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return nil, err
	}
	w := &BlobWriter{s: s, digest: d, size: size, f: f, space: &Space{Dir: s.dir}}
	// The previous holder of the lock may have completed the blob.
	switch err := s.pin(ctx, d, size); {
	case err == nil:
		w.discard()
		return nil, ErrPresent
	case !errors.Is(err, fs.ErrNotExist):
		w.Close()
		return nil, err
	}
	if err = w.resume(); err == nil {
		err = (&Space{Dir: s.dir}).take(w.size - w.n)
	}
	if err != nil {
		w.full = noSpace(err)
		w.Close()
		return nil, err
	}
	return w, nil
}

// resume hashes the bytes of an earlier attempt. A file longer than the blob is wrong, and is
// truncated.
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

// Offset returns how many bytes of the blob have been written.
func (w *BlobWriter) Offset() int64 { return w.n }

// Restart discards the bytes written so far, for a source that can only start at offset 0.
func (w *BlobWriter) Restart() error {
	w.hash.Reset()
	w.n = 0
	_, err := w.f.Seek(0, io.SeekStart)
	return errors.Join(err, w.f.Truncate(0))
}

// writeback is the number of bytes after which Write asks the kernel to start writeback. Without it,
// Commit would wait for a whole layer to reach the disk.
const writeback = 8 << 20

// Write appends to the blob. It returns [ErrCorrupt] if p would make the blob longer than its size.
func (w *BlobWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.size-w.n {
		return 0, fmt.Errorf("write blob %s: %w: longer than %d bytes", w.digest, ErrCorrupt, w.size)
	}
	n, err := 0, w.space.take(int64(len(p)))
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

// startWriteback is a hint. Its error is ignored, because file systems need not support it.
func startWriteback(f *os.File, off, n int64) {
	const syncFileRangeWrite = 2
	_ = syscall.SyncFileRange(int(f.Fd()), off, n, syncFileRangeWrite)
}

// Commit adds the blob to the store if its size and digest are right. With a wrong digest it removes
// the file and returns [ErrCorrupt]. A blob that is too short is kept for a resume, and the error is
// [io.ErrUnexpectedEOF]. The writer is closed in every case.
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

// publish renames a locked partial file into the blobs and pins it. The store then owns the file.
// flock(2) converts an exclusive lock into a shared one by releasing it first. The store's lock,
// held here, stops other processes from removing the blob at that moment.
func (s *Store) publish(ctx context.Context, f *os.File, d oci.Digest) error {
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if s.usePublished(f, d) {
		return nil
	}
	if err := os.Rename(f.Name(), s.blobPath(d)); err != nil {
		return err
	}
	if err := fsutil.SyncDir(s.path("blobs/sha256")); err != nil {
		return err
	}
	_ = os.Remove(s.droppedPath(d)) // best effort: a record of a blob that is present means nothing
	if err := flock.Lock(f, flock.Shared); err != nil {
		return err
	}
	s.addPin(d, f)
	return nil
}

// usePublished pins the blob that another process published meanwhile, and removes f. That blob must not be
// replaced: another process may have pinned it, and a pin is on a file, not on a name. The caller
// has the store's lock.
func (s *Store) usePublished(f *os.File, d oci.Digest) bool {
	there, err := flock.TryOpen(s.blobPath(d), os.O_RDONLY, flock.Shared)
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

// Close abandons the write, unless Commit was called before. The bytes written are kept for a
// resume; if the disk is full, they are removed.
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

// discard removes the partial file while it is locked, and then closes it.
func (w *BlobWriter) discard() {
	os.Remove(w.f.Name())
	w.f.Close()
	w.done = true
}
