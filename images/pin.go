package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"demesne/images/oci"
)

// pin keeps a blob from being removed. A blob of another size than it must have is damaged, and
// taken away.
func (s *Store) pin(ctx context.Context, d oci.Digest, size int64) error {
	if s.pinned(d) {
		return nil
	}
	path := s.blobPath(d)
	f, err := lockFile(ctx, path, os.O_RDONLY, syscall.LOCK_SH)
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

// pinned says whether a blob is kept already. A repair removes a damaged one all the same.
func (s *Store) pinned(d oci.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pins[d]
	if f == nil {
		return false
	}
	if isStill(f, s.blobPath(d)) {
		return true
	}
	f.Close()
	delete(s.pins, d)
	return false
}

// addPin takes over f.
func (s *Store) addPin(d oci.Digest, f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pins[d] != nil {
		f.Close()
		return
	}
	s.pins[d] = f
}

// removeDamaged removes a blob of a wrong size, which may have been mended since somebody looked.
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

// unpin lets go of the layers of an image that is in the index by now. What else it is made of is
// small and goes when the store is closed.
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
