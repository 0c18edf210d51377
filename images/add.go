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
	"demesne/internal/flock"
)

// A Record is an image to be named, for [Store.Add].
type Record struct {
	Ref      imageref.Ref   // Ref.Full becomes the name; zero: no name, so that the next [Store.GC] removes the image
	Manifest oci.Descriptor // the store has its blob and the blobs it names
	Index    oci.Digest     // the index that the name pointed to, or ""
	Pulled   time.Time      // start of the pull; zero for an import
}

// Add names an image, all of whose blobs must be in the store. If the name pointed to another
// image, it now points to this one. The other image is kept until garbage collection. Adding the
// same image again is not an error.
func (s *Store) Add(ctx context.Context, r Record) (*Image, error) {
	if k := r.Ref.Kind; k != "" && (k == imageref.Pinned || !r.Ref.Stored()) {
		return nil, fmt.Errorf("add image %q: not a valid name for an image", r.Ref)
	}
	var img *Image
	err := s.update(ctx, func(entries []entry) (after []entry, changed bool, err error) {
		entries, e := nameIn(entries, r)
		if img, err = s.load(e); err != nil {
			return nil, false, err
		}
		if err := s.layers(img, func(oci.Digest) bool { return false }); err != nil {
			return nil, false, err
		}
		return entries, true, s.touch(e.Digest)
	})
	if err != nil {
		return nil, fmt.Errorf("add image %q: %w", r.Ref, err)
	}
	if r.Ref.Kind != "" { // the next GC removes an image without a name, so its layers stay pinned
		s.unpin(img)
	}
	return img, nil
}

// nameIn returns the entries with r added, and the entry of r.
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
	if name != "" {
		e.names = append(without(e.names, name), name)
	}
	if r.Index != "" {
		e.index = r.Index
	}
	if !r.Pulled.IsZero() {
		e.pulled = r.Pulled
		if r.Ref.Kind == imageref.Registry {
			e.source = repository(name)
		}
	}
	return append(out, e), e
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// Whole returns [ErrCorrupt] unless the blobs of all layers exist and have the right size. A blob that
// was dropped may be missing: see [Store.Dropped].
func (s *Store) Whole(img *Image) error {
	return s.layers(img, func(d oci.Digest) bool { return s.Dropped(d) != nil })
}

// layers checks the blobs of an image's layers, of which only those may be missing that absent allows.
func (s files) layers(img *Image, absent func(oci.Digest) bool) error {
	for _, l := range img.Layers {
		st, err := os.Stat(s.blobPath(l.Digest))
		switch {
		case errors.Is(err, fs.ErrNotExist) && absent(l.Digest):
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

// touch sets the time of an image's last use to now.
func (s files) touch(d oci.Digest) error {
	path, now := s.usedPath(d), time.Now()
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Chmod(0o644), os.Chtimes(path, now, now))
}

// Hold marks the image as in use until the returned file is closed or the process ends. It also
// sets the time of last use. It returns [ErrNotFound] if the image has been removed.
func (s *Store) Hold(ctx context.Context, d oci.Digest) (io.Closer, error) {
	path := s.usedPath(d)
	f, err := flock.Open(ctx, path, os.O_RDONLY, flock.Shared)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.reviveUsed(ctx, d); err == nil {
			f, err = flock.Open(ctx, path, os.O_RDONLY, flock.Shared)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("hold image %s: %w", d, err)
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // best effort: the store may be read-only to this process
	return f, nil
}

// claim locks an image against every Hold. It returns [ErrInUse] if the image is held. The caller
// has the store's lock.
func (s *Store) claim(d oci.Digest) (*os.File, error) {
	if err := s.ensureUsed(d); err != nil {
		return nil, err
	}
	f, err := flock.TryOpen(s.usedPath(d), os.O_RDONLY, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) {
		return nil, fmt.Errorf("image %s: %w", d, ErrInUse)
	}
	return f, err
}

// reviveUsed makes the used file of an image that another tool added to the index.
func (s *Store) reviveUsed(ctx context.Context, d oci.Digest) error {
	return s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.Digest == d }) {
			return nil, false, ErrNotFound
		}
		return nil, false, s.ensureUsed(d)
	})
}

// ensureUsed makes the used file of an image if it does not exist.
func (s files) ensureUsed(d oci.Digest) error {
	if _, err := os.Lstat(s.usedPath(d)); err == nil {
		return nil
	}
	return s.touch(d)
}
