package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// A dropped blob was removed on purpose, because its layer is unpacked and a registry still has the blob. The file
// dropped/HEX records that, with one source a line: "REPOSITORY@DIGEST" of an image that contains it.
// A blob that is present counts as present, whatever the record says.

const maxDropped = 1 << 20 // bytes of a record

// Dropped returns where a blob that was dropped can be fetched again: names of images in registries,
// by digest. It returns nil if the blob is present, or missing for another reason.
func (s files) Dropped(d oci.Digest) []string {
	if _, err := os.Lstat(s.blobPath(d)); d == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := readAll(s.droppedPath(d), maxDropped)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// Keep protects the layers' blobs of an image from removal until [Store.Close]. It returns the layers
// whose blobs were dropped, each blob once. If another blob is missing, the error is [ErrCorrupt].
func (s *Store) Keep(ctx context.Context, img *Image) (dropped []oci.Layer, err error) {
	for _, l := range img.Layers {
		if slices.ContainsFunc(dropped, func(o oci.Layer) bool { return o.Digest == l.Digest }) {
			continue
		}
		err := s.pin(ctx, l.Digest, l.Size)
		switch {
		case err == nil:
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("keep layer %s: %w", l.Digest, err)
		case s.Dropped(l.Digest) == nil:
			return nil, fmt.Errorf("layer %s: %w: it is missing", l.Digest, ErrCorrupt)
		default:
			dropped = append(dropped, l)
		}
	}
	return dropped, nil
}

// repository returns a full name without its tag and digest.
func repository(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// drops lists the blobs that may be dropped, each with its sources.
type drops struct {
	sources map[oci.Digest][]string
	keep    map[oci.Digest]bool
}

// droppable returns the blobs of layers that are unpacked, if every image that has them can be pulled
// again. A damaged image does not count: its layers are unknown, and it has to be pulled anyway.
func (s *Store) droppable(entries []entry, unpacked func(oci.Digest) bool) map[oci.Digest][]string {
	d := drops{map[oci.Digest][]string{}, map[oci.Digest]bool{}}
	for _, e := range entries {
		img, err := s.load(e)
		if err != nil {
			continue
		}
		for _, l := range img.Layers {
			if e.source == "" || !unpacked(l.DiffID) {
				d.keep[l.Digest] = true
			}
			d.sources[l.Digest] = unique(append(d.sources[l.Digest], e.source+"@"+string(e.Digest)))
		}
		d.keep[e.Digest] = true // a layer may not be a manifest or a configuration, too
	}
	for b := range d.keep {
		delete(d.sources, b)
	}
	return d.sources
}

// dropBlobs records and removes the blobs of unpacked layers. It writes the record first: a blob that
// is missing without one is damage. The caller has the lock.
func (s *Store) dropBlobs(entries []entry, unpacked func(oci.Digest) bool, freed *Freed) error {
	if err := makeDir(s.path("dropped"), 0o755); err != nil {
		return err
	}
	var errs []error
	for d, from := range s.droppable(entries, unpacked) {
		n, err := s.dropBlob(d, from)
		if n >= 0 && err == nil {
			freed.Blobs++
			freed.Bytes += n
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dropBlob drops one blob. It returns its size, or -1 if the blob is missing or in use.
func (s files) dropBlob(d oci.Digest, from []string) (int64, error) {
	if _, err := os.Lstat(s.blobPath(d)); errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err := fsutil.WriteFile(s.droppedPath(d), []byte(strings.Join(from, "\n")+"\n"), 0o644); err != nil {
		return -1, err
	}
	n, err := removeUnlocked(s.blobPath(d))
	if n < 0 || err != nil {
		return -1, errors.Join(err, os.Remove(s.droppedPath(d)))
	}
	return n, nil
}

// removeDropped removes the records of blobs that no image has.
func (s files) removeDropped(keep map[oci.Digest]bool) error {
	return s.eachFile("dropped", func(name, path string) error {
		if keep[oci.Digest(oci.Algorithm+name)] {
			return nil
		}
		return os.Remove(path)
	})
}
