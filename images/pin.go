package images

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"demesne/images/oci"
	"demesne/internal/flock"
)

// pin protects a blob from removal. If the blob has another size than expected, it is damaged:
// pin removes it and returns [fs.ErrNotExist].
func (s *Store) pin(ctx context.Context, d oci.Digest, size int64) error {
	if s.pinned(d) {
		return nil
	}
	path := s.blobPath(d)
	f, err := flock.Open(ctx, path, os.O_RDONLY, flock.Shared)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() == size {
		s.addPin(d, f)
		return nil
	}
	f.Close()
	if err := errors.Join(err, s.removeDamaged(ctx, d, size)); err != nil {
		return err
	}
	return fs.ErrNotExist
}

// pinned reports whether a blob is pinned. It forgets a pin whose blob was removed or replaced,
// as a repair does.
func (s *Store) pinned(d oci.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pins[d]
	if f == nil {
		return false
	}
	if flock.Leads(s.blobPath(d), f) {
		return true
	}
	f.Close()
	delete(s.pins, d)
	return false
}

// addPin takes ownership of f.
func (s *Store) addPin(d oci.Digest, f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins[d] != nil {
		f.Close()
		return
	}
	s.pins[d] = f
}

// removeDamaged removes a blob if its size is still wrong: another process may have repaired it.
func (s *Store) removeDamaged(ctx context.Context, d oci.Digest, size int64) error {
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	st, err := os.Lstat(s.blobPath(d))
	if err != nil || st.Size() == size {
		return nil
	}
	return os.Remove(s.blobPath(d))
}

// unpin releases the layers of an image that the index now names. The other blobs are small and
// are released by Close.
func (s *Store) unpin(img *Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range img.Layers {
		if f := s.pins[l.Digest]; f != nil {
			f.Close()
			delete(s.pins, l.Digest)
		}
	}
}
