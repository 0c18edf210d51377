package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/flock"
)

// Freed lists what a removal removed.
type Freed struct {
	Names  []string // names that no longer point to an image
	Images []oci.Digest
	Blobs  int
	Bytes  int64 // of blobs and unfinished downloads
}

// Remove removes a name. With the last name it removes the image: its configuration, and the layers
// that no other image has. A reference by digest removes all names. Remove returns [ErrInUse] for an
// image that is held, unless force is set; a sandbox that uses the image keeps running.
// [Client.Sweep] removes the unpacked layers.
func (s *Store) Remove(ctx context.Context, ref imageref.Ref, force bool) (*Freed, error) {
	freed := &Freed{}
	err := s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		i, err := find(entries, ref)
		switch {
		case err != nil:
			return nil, false, err
		case i < 0 && ref.Kind == imageref.Bare:
			return nil, false, unknown(ref.Given, entries)
		case i < 0, ref.Kind != imageref.Pinned && !slices.Contains(entries[i].names, ref.Full):
			return nil, false, ErrNotFound
		}
		e := &entries[i]
		if left := without(e.names, ref.Full); ref.Kind != imageref.Pinned && len(left) > 0 {
			e.names = left
			freed.Names = []string{ref.Full}
			return entries, true, nil
		}
		entries, err = s.drop(entries, func(c entry) bool { return c.Digest == e.Digest }, force, freed)
		if err == nil && len(freed.Images) == 0 {
			err = ErrInUse
		}
		if err != nil {
			return nil, false, err // without entries, no blob is known to be unused
		}
		return nil, false, s.removeBlobs(entries, time.Time{}, freed)
	})
	var u *UnknownError
	if err != nil && !errors.As(err, &u) {
		return nil, fmt.Errorf("remove image %q: %w", ref, err)
	}
	if err != nil {
		return nil, err
	}
	return freed, nil
}

// RemoveAll removes images with all their names, like [Store.Remove] with force, but looks for unused blobs once.
// Digests without an image are skipped.
func (s *Store) RemoveAll(ctx context.Context, digests []oci.Digest) error {
	if len(digests) == 0 {
		return nil
	}
	err := s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		freed := &Freed{}
		left, err := s.drop(entries, func(e entry) bool { return slices.Contains(digests, e.Digest) }, true, freed)
		if err != nil || len(freed.Images) == 0 {
			return nil, false, err
		}
		return nil, false, s.removeBlobs(left, time.Time{}, freed)
	})
	if err != nil {
		return fmt.Errorf("remove images: %w", err)
	}
	return nil
}

// GCOptions select what is old enough to remove.
type GCOptions struct {
	All       bool          // every image that is not in use
	OlderThan time.Duration // images not used for this long; 0: age does not matter
	Partials  time.Duration // unfinished downloads of at least this age; 0: a day
	// Unpacked, if not nil, reports whether a layer is unpacked. GC then drops the blobs of unpacked
	// layers of images that were pulled. See [Store.Dropped].
	Unpacked func(diffID oci.Digest) bool
}

// GC removes images without a name, images that the options select, blobs of no image, compressed forms of layers that no
// push used for a week, and unfinished downloads. It never removes an image that is held. It never removes a blob that a
// process found or made for an image it has not named yet.
func (s *Store) GC(ctx context.Context, o GCOptions) (*Freed, error) {
	freed := &Freed{}
	now := time.Now()
	err := s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		old := func(e entry) bool {
			if o.All || len(e.names) == 0 {
				return true
			}
			st, err := os.Stat(s.usedPath(e.Digest))
			return o.OlderThan > 0 && err == nil && now.Sub(st.ModTime()) > o.OlderThan
		}
		entries, err := s.drop(entries, old, false, freed)
		if err != nil {
			return nil, false, err
		}
		var dropped error
		if o.Unpacked != nil {
			dropped = s.dropBlobs(entries, o.Unpacked, freed)
		}
		used := now.Add(-formLife)
		if o.All {
			used = now
		}
		return nil, false, errors.Join(
			dropped, s.removeBlobs(entries, used, freed), s.removeUsed(entries), s.removePartials(o, now, freed), s.removeTemps(now))
	})
	if err != nil {
		return nil, fmt.Errorf("collect garbage: %w", err)
	}
	return freed, nil
}

// drop removes the images that match which from the index, and returns the others. It keeps images
// that are held, unless force is set. It writes the index before any blob is removed. The caller has
// the lock.
func (s *Store) drop(entries []entry, which func(entry) bool, force bool, freed *Freed) ([]entry, error) {
	var left []entry
	var claims []*os.File
	defer func() {
		for _, f := range claims {
			f.Close()
		}
	}()
	for _, e := range entries {
		if !which(e) {
			left = append(left, e)
			continue
		}
		f, err := s.claim(e.Digest)
		switch {
		case err == nil:
			claims = append(claims, f)
		case errors.Is(err, ErrInUse) && !force:
			left = append(left, e)
			continue
		case !errors.Is(err, ErrInUse):
			return nil, err
		}
		freed.Images = append(freed.Images, e.Digest)
		freed.Names = append(freed.Names, e.names...)
	}
	if len(left) == len(entries) {
		return left, nil
	}
	if err := s.writeIndex(left); err != nil {
		return nil, err
	}
	for _, d := range freed.Images {
		if err := os.Remove(s.usedPath(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return left, nil
}

// removeBlobs removes the blobs that no image has and no process has pinned. It keeps the compressed forms of layers that
// were used since. The caller has the lock.
func (s *Store) removeBlobs(entries []entry, since time.Time, freed *Freed) error {
	keep, err := s.reachable(entries)
	if err != nil {
		return err
	}
	forms, err := s.forms(keep, since)
	if err != nil {
		return err
	}
	layers := maps.Clone(keep)
	for _, d := range forms {
		keep[d] = true
	}
	err = s.eachFile("blobs/sha256", func(name, path string) error {
		if keep[oci.Digest(oci.Algorithm+name)] {
			return nil
		}
		n, err := removeUnlocked(path)
		if n >= 0 && err == nil {
			freed.Blobs++
			freed.Bytes += n
		}
		return err
	})
	return errors.Join(err, s.removeDropped(layers), s.removeCopies(layers))
}

// reachable returns the blobs of all images, and of the kept steps of builds. For an image whose manifest is damaged it returns only
// the manifest, because the image must be pulled again.
func (s *Store) reachable(entries []entry) (map[oci.Digest]bool, error) {
	keep := map[oci.Digest]bool{}
	steps, err := s.stepLayers()
	if err != nil {
		return nil, err
	}
	for _, l := range steps {
		keep[l.Digest] = true
	}
	for _, e := range entries {
		keep[e.Digest] = true
		raw, err := s.readBlob(e.Descriptor)
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := oci.ParseManifest(raw)
		if err != nil {
			continue
		}
		for _, b := range m.Blobs() {
			keep[b.Digest] = true
		}
	}
	return keep, nil
}

// removeUsed removes the used files of images that have been removed.
func (s files) removeUsed(entries []entry) error {
	keep := map[string]bool{}
	for _, e := range entries {
		keep[e.Digest.Encoded()] = true
	}
	return s.eachFile("used", func(name, path string) error {
		if keep[name] {
			return nil
		}
		_, err := removeUnlocked(path)
		return err
	})
}

// removePartials removes unfinished downloads that no process has locked.
func (s *Store) removePartials(o GCOptions, now time.Time, freed *Freed) error {
	age := o.Partials
	if age == 0 {
		age = 24 * time.Hour
	}
	return s.eachFile("partial", func(name, path string) error {
		st, err := os.Lstat(path)
		// A temporary file is created a moment before it is locked.
		fresh := strings.HasPrefix(name, tempPrefix) && err == nil && now.Sub(st.ModTime()) < time.Minute
		if err != nil || fresh || now.Sub(st.ModTime()) < age && !o.All {
			return nil
		}
		n, err := removeUnlocked(path)
		freed.Bytes += max(n, 0)
		return err
	})
}

// removeTemps removes the temporary files that a killed writeFile left, after an hour.
func (s files) removeTemps(now time.Time) error {
	return s.eachFile("", func(name, path string) error {
		st, err := os.Lstat(path)
		if err != nil || !strings.HasPrefix(name, ".") || !st.Mode().IsRegular() || now.Sub(st.ModTime()) < time.Hour {
			return nil
		}
		return os.Remove(path)
	})
}

// eachFile calls do for each name in a directory of the store. It treats a missing directory as
// empty.
func (s files) eachFile(dir string, do func(name, path string) error) error {
	list, err := os.ReadDir(s.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range list {
		errs = append(errs, do(e.Name(), s.path(dir+"/"+e.Name())))
	}
	return errors.Join(errs...)
}

// removeUnlocked removes a file that no process has locked. It returns the file's size, or -1 if it
// was not removed.
func removeUnlocked(path string) (int64, error) {
	f, err := flock.TryOpen(path, os.O_RDONLY, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return -1, err
	}
	return st.Size(), os.Remove(path)
}
