package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/text"
)

// An Image is an image of the store, with its configuration and its layers.
type Image struct {
	Names   []string   // full names; empty if the tag points to another image now
	Digest  oci.Digest // digest of the manifest
	Index   oci.Digest // digest of the index that the name pointed to, or ""
	Config  oci.Config
	Layers  []oci.Layer // bottom first
	Created time.Time
	Pulled  time.Time // zero if it was imported
	Used    time.Time
	Size    int64 // of all blobs; the unpacked image is larger
}

// DiffIDs returns the DiffIDs of the layers, bottom first.
func (img *Image) DiffIDs() []oci.Digest {
	var ids []oci.Digest
	for _, l := range img.Layers {
		ids = append(ids, l.DiffID)
	}
	return ids
}

// An UnknownError reports that a word names no known image.
type UnknownError struct {
	Name  string
	Near  string   // the known name closest in spelling, or ""
	Known []string // the catalogue, and the images that the store has under a single word
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("image %q: not known", oci.Clip(e.Name))
}

func (e *UnknownError) Unwrap() error { return ErrNotFound }

// Lookup returns the image that ref names. If the store does not have it, the error is
// [ErrNotFound], as an [UnknownError] for a single word. If the image is damaged, the error is
// [ErrCorrupt]. Lookup reads index.json, the manifest and the configuration, and compares the
// digests of the latter two. It does not check the layers' blobs: an unpacked image runs without
// them.
func (s *Store) Lookup(ref imageref.Ref) (*Image, error) {
	if !ref.Stored() {
		return nil, fmt.Errorf("image %q: it is not in an image store", ref)
	}
	entries, err := s.readIndex()
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	i, err := find(entries, ref)
	switch {
	case err != nil:
		return nil, fmt.Errorf("image %q: %w", ref, err)
	case i < 0 && ref.Kind == imageref.Bare:
		return nil, unknown(ref.Given, entries)
	case i < 0:
		return nil, fmt.Errorf("image %q: %w", ref, ErrNotFound)
	}
	img, err := s.load(entries[i])
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	return img, nil
}

// unknown returns an [UnknownError] with the names that the store and the catalogue have.
func unknown(name string, entries []entry) error {
	e := &UnknownError{Name: name, Known: imageref.Catalogue()}
	for _, entry := range entries {
		for _, full := range entry.names {
			if word, ok := imageref.Word(full); ok {
				e.Known = append(e.Known, word)
			}
		}
	}
	e.Known = unique(e.Known)
	e.Near = text.Nearest(name, e.Known)
	return e
}

// unique removes duplicates and keeps the order.
func unique(names []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, n := range names {
		if !seen[n] {
			out = append(out, n)
		}
		seen[n] = true
	}
	return out
}

// load reads the manifest and the configuration of an entry.
func (s *Store) load(e entry) (*Image, error) {
	raw, err := s.readBlob(e.Descriptor)
	if err != nil {
		return nil, err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if raw, err = s.readBlob(m.Config); err != nil {
		return nil, err
	}
	c, err := oci.ParseConfig(raw, len(m.Layers))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	img := &Image{
		Names: e.names, Digest: e.Digest, Index: e.index, Pulled: e.pulled,
		Config: c.Config, Created: c.Created, Size: e.Size,
	}
	for i, l := range m.Layers {
		img.Layers = append(img.Layers, oci.Layer{Digest: l.Digest, DiffID: c.DiffIDs[i], Size: l.Size, MediaType: l.MediaType})
	}
	for _, b := range m.Blobs() {
		img.Size += b.Size
	}
	if st, err := os.Stat(s.usedPath(e.Digest)); err == nil {
		img.Used = st.ModTime()
	}
	return img, nil
}

// readBlob reads a small blob and compares its size and digest.
func (s *Store) readBlob(d oci.Descriptor) ([]byte, error) {
	f, err := s.Blob(d.Digest)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readFile(f, d.Size)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w: %w", d.Digest, ErrCorrupt, err)
	}
	if int64(len(b)) != d.Size || oci.DigestOf(b) != d.Digest {
		return nil, fmt.Errorf("read blob %s: %w: its content does not match its digest", d.Digest, ErrCorrupt)
	}
	return b, nil
}

// Blob opens a blob for reading. It does not compare the content with the digest. If the blob is
// missing, the error is [ErrCorrupt].
func (s *Store) Blob(d oci.Digest) (*os.File, error) {
	if d == "" {
		return nil, errors.New("open blob: no digest")
	}
	f, err := os.Open(s.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open blob %s: %w: it is missing", d, ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	return f, nil
}

func readFile(f *os.File, limit int64) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%d bytes, more than %d", st.Size(), limit)
	}
	b := make([]byte, st.Size())
	n, err := io.ReadFull(f, b)
	return b[:n], err
}
