package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
)

// A Record is an image that whoever brought it here wants to name.
type Record struct {
	Ref      imageref.Ref   // its Full becomes the name
	Manifest oci.Descriptor // its blob and the blobs it names are in the store
	Index    oci.Digest     // of the index that the name pointed to, or ""
	Pulled   time.Time      // when the pull began; zero for an import
}

// Add names an image, whose blobs must all be there: a name that pointed to another image points to
// this one afterwards, and the other one stays until nothing uses it. The same again is no error.
func (s *Store) Add(ctx context.Context, r Record) (*Image, error) {
	if k := r.Ref.Kind; k == imageref.Pinned || !r.Ref.Stored() {
		return nil, fmt.Errorf("add image %q: it is no name that an image may have", r.Ref)
	}
	var img *Image
	err := s.update(ctx, func(entries []entry) (after []entry, changed bool, err error) {
		entries, e := nameIn(entries, r)
		if img, err = s.load(e); err != nil {
			return nil, false, err
		}
		if err := s.Whole(img); err != nil {
			return nil, false, err
		}
		return entries, true, s.touch(e.Digest)
	})
	if err != nil {
		return nil, fmt.Errorf("add image %q: %w", r.Ref, err)
	}
	s.unpin(img)
	return img, nil
}

// nameIn returns the entries with r among them, and r's own.
func nameIn(entries []entry, r Record) ([]entry, entry) {
	name := r.Ref.Full
	e := entry{Descriptor: r.Manifest}
	var out []entry
	for _, old := range entries {
		if old.Digest == r.Manifest.Digest {
			e = old
			e.MediaType, e.Size = r.Manifest.MediaType, r.Manifest.Size
			continue
		}
		old.names = without(old.names, name)
		out = append(out, old)
	}
	e.names = append(without(e.names, name), name)
	if r.Index != "" {
		e.index = r.Index
	}
	if !r.Pulled.IsZero() {
		e.pulled = r.Pulled
	}
	return append(out, e), e
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// Whole says whether all blobs of an image are there, of the size they must have: [ErrCorrupt] if
// not.
func (s *Store) Whole(img *Image) error {
	for _, l := range img.Layers {
		st, err := os.Stat(s.blobPath(l.Digest))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("layer %s: %w: it is missing", l.Digest, ErrCorrupt)
		case err != nil:
			return fmt.Errorf("layer %s: %w", l.Digest, err)
		case st.Size() != l.Size:
			return fmt.Errorf("layer %s: %w: %d bytes, not %d", l.Digest, ErrCorrupt, st.Size(), l.Size)
		}
	}
	return nil
}

// touch says that an image was used now.
func (s *Store) touch(d oci.Digest) error {
	path, now := s.usedPath(d), time.Now()
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Chmod(0o644), os.Chtimes(path, now, now))
}

// Hold says that the image is in use, until the returned file is closed or the process ends, and
// that it was used now. It is [ErrNotFound] if it has been removed meanwhile.
func (s *Store) Hold(ctx context.Context, d oci.Digest) (io.Closer, error) {
	path := s.usedPath(d)
	f, err := lockFile(ctx, path, os.O_RDONLY, syscall.LOCK_SH)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.reviveUsed(ctx, d); err == nil {
			f, err = lockFile(ctx, path, os.O_RDONLY, syscall.LOCK_SH)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("hold image %s: %w", d, err)
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // somebody else's store may be read all the same
	return f, nil
}

// claim takes an image away from everybody who could hold it: [ErrInUse] if somebody does. Whoever
// claims has the store's lock.
func (s *Store) claim(d oci.Digest) (*os.File, error) {
	if err := s.ensureUsed(d); err != nil {
		return nil, err
	}
	f, err := tryLockFile(s.usedPath(d), os.O_RDONLY, syscall.LOCK_EX)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("image %s: %w", d, ErrInUse)
	}
	return f, err
}

// reviveUsed makes the used file of an image that was named by another tool.
func (s *Store) reviveUsed(ctx context.Context, d oci.Digest) error {
	return s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.Digest == d }) {
			return nil, false, ErrNotFound
		}
		return nil, false, s.ensureUsed(d)
	})
}

// ensureUsed makes the used file where there is none, and leaves one that is there.
func (s *Store) ensureUsed(d oci.Digest) error {
	if _, err := os.Lstat(s.usedPath(d)); err == nil {
		return nil
	}
	return s.touch(d)
}
