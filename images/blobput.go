package images

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"demesne/images/oci"
	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// Put stores the content of r, up to limit bytes, and returns its digest and size. The blob is
// kept as with [Store.Begin].
func (s *Store) Put(ctx context.Context, r io.Reader, limit int64) (d oci.Digest, size int64, err error) {
	f, err := os.CreateTemp(s.path("partial"), tempPrefix+"*")
	if err != nil {
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	d, size, err = s.put(ctx, f, r, limit)
	if err != nil {
		os.Remove(f.Name())
		f.Close()
		return "", 0, fmt.Errorf("put blob: %w", err)
	}
	return d, size, nil
}

func (s *Store) put(ctx context.Context, f *os.File, r io.Reader, limit int64) (oci.Digest, int64, error) {
	if err := flock.Lock(f, flock.Exclusive); err != nil {
		return "", 0, err
	}
	h := sha256.New()
	space := &Space{Dir: s.dir}
	size, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(&flusher{Writer: space.Writer(f), f: f}, h)}, &io.LimitedReader{R: fsutil.ContextReader(ctx, r), N: limit + 1}, make([]byte, 256<<10))
	if err != nil {
		return "", 0, err
	}
	if size > limit {
		return "", 0, fmt.Errorf("longer than %d bytes", limit)
	}
	d := oci.DigestFrom(h.Sum(nil))
	switch err := s.pin(ctx, d, size); {
	case err == nil:
		return d, size, errors.Join(os.Remove(f.Name()), f.Close())
	case !errors.Is(err, fs.ErrNotExist):
		return "", 0, err
	}
	return d, size, s.publish(ctx, f, d)
}

// flusher makes the kernel start to write a file to the disk before the end.
type flusher struct {
	io.Writer
	f *os.File
	n int64
}

func (w *flusher) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	before := w.n / writeback
	w.n += int64(n)
	if now := w.n / writeback; now > before {
		startWriteback(w.f, before*writeback, (now-before)*writeback)
	}
	return n, err
}

// tempPrefix starts the names in partial that are not digests.
const tempPrefix = "put-"
