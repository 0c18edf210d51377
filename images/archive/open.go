package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	digest "github.com/opencontainers/go-digest"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	ociarchive "go.podman.io/image/v5/oci/archive"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// A Source is an image in a layout or archive. It implements the source of images/pull.
type Source struct {
	files
	path string
	ref  types.ImageReference // the reference that policy.json rules match
	top  document             // the manifest or index

	// names and made are set for an archive in Docker's format. names has the files of the blobs;
	// made has the contents of blobs that are not in the archive.
	names map[oci.Digest]string
	made  map[oci.Digest][]byte
}

// document is a manifest or index.
type document struct {
	raw       []byte
	mediaType string
}

// Open opens the image in a layout or archive. tag selects one of several images. A compressed
// archive is decompressed into dir.
func Open(ctx context.Context, kind imageref.Kind, path, tag, dir string) (*Source, error) {
	s := &Source{path: path}
	var err error
	if s.files, err = openFiles(ctx, kind, path, dir); err != nil {
		return nil, err
	}
	switch kind {
	case imageref.DockerArchive:
		err = s.readDocker(ctx, tag)
	default:
		err = s.readLayout(tag)
	}
	if err == nil {
		s.ref, err = reference(kind, path, tag)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func openFiles(ctx context.Context, kind imageref.Kind, path, dir string) (files, error) {
	if kind != imageref.OCILayout {
		return openTarball(ctx, path, dir)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return directory{root}, nil
}

// reference returns the reference that policy.json uses to match rules for files.
func reference(kind imageref.Kind, path, tag string) (types.ImageReference, error) {
	switch kind {
	case imageref.OCILayout:
		return layout.NewReference(path, tag)
	case imageref.OCIArchive:
		return ociarchive.NewReference(path, tag)
	}
	return dockerarchive.NewReference(path, nil)
}

// Unparsed returns the manifest or index of the source, or one image of the index.
func (s *Source) Unparsed(instance *digest.Digest) types.UnparsedImage {
	if instance == nil {
		return &unparsed{s, func() (document, error) { return s.top, nil }}
	}
	return &unparsed{s, func() (document, error) {
		d, err := oci.ParseDigest(string(*instance))
		if err != nil {
			return document{}, invalid(s.path, "%w", err)
		}
		raw, err := read(s.files, blobName(d), oci.MaxManifest)
		if err != nil {
			return document{}, s.wrong(err)
		}
		if oci.DigestOf(raw) != d {
			return document{}, invalid(s.path, "the content of manifest %s does not match its digest", d)
		}
		return document{raw: raw}, nil
	}}
}

// unparsed is a manifest of a Source.
type unparsed struct {
	s    *Source
	read func() (document, error)
}

func (u *unparsed) Reference() types.ImageReference { return u.s.ref }

func (u *unparsed) Manifest(context.Context) ([]byte, string, error) {
	d, err := u.read()
	return d.raw, d.mediaType, err
}

// Signatures returns none: layouts and archives have no standard place for signatures.
func (u *unparsed) Signatures(context.Context) ([][]byte, error) { return nil, nil }

// Blob opens a blob at an offset. The caller must compare the digest.
func (s *Source) Blob(ctx context.Context, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	if b, ok := s.made[d.Digest]; ok {
		return io.NopCloser(newSection(b, offset)), nil
	}
	name, ok := s.names[d.Digest]
	if !ok {
		name = blobName(d.Digest)
	}
	m, err := s.open(name)
	if err != nil {
		return nil, s.wrong(err)
	}
	if m.Size() < d.Size {
		m.Close()
		return nil, invalid(s.path, "blob %s has %d bytes, not %d", d.Digest, m.Size(), d.Size)
	}
	if _, err := m.Seek(offset, io.SeekStart); err != nil {
		m.Close()
		return nil, err
	}
	return &body{fsutil.ContextReader(ctx, m), m}, nil
}

type body struct {
	io.Reader
	io.Closer
}

// wrong returns an [InvalidError] for a missing file, and else err with the path.
func (s *Source) wrong(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &InvalidError{s.path, err}
	}
	return fmt.Errorf("read %q: %w", s.path, err)
}

func blobName(d oci.Digest) string { return "blobs/sha256/" + d.Encoded() }
