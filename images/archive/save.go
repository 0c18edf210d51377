package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// formats maps the format argument of Save to its writer.
var formats = map[string]func(*saver) error{
	"":       (*saver).oci,
	"oci":    (*saver).oci,
	"docker": (*saver).docker,
}

// Save writes an image as an archive in the format "oci", the default, or "docker". The format "oci"
// contains the image's own manifest, so the image keeps its digest when it is loaded elsewhere. The
// format "docker" has no manifest.
func Save(ctx context.Context, store *images.Store, img *images.Image, ref imageref.Ref, format string, w io.Writer) error {
	write := formats[format]
	if write == nil {
		return fmt.Errorf("save image: format %q is neither \"oci\" nor \"docker\"", format)
	}
	s := &saver{ctx: ctx, store: store, img: img, ref: ref, tar: tar.NewWriter(w)}
	if err := write(s); err != nil {
		return err
	}
	return s.tar.Close()
}

type saver struct {
	ctx   context.Context
	store *images.Store
	img   *images.Image
	ref   imageref.Ref
	tar   *tar.Writer
}

// oci writes an OCI image layout.
func (s *saver) oci() error {
	raw, m, err := s.manifest()
	if err != nil {
		return err
	}
	d := oci.Descriptor{MediaType: m.MediaType, Digest: s.img.Digest, Size: int64(len(raw))}
	if s.ref.Kind == imageref.Registry || s.ref.Kind == imageref.Bare {
		d.Annotations = map[string]string{annotationName: s.ref.Full}
	}
	idx, err := json.Marshal(index{2, typeIndex, []oci.Descriptor{d}})
	if err != nil {
		return err
	}
	err = errors.Join(s.directory("blobs"), s.directory("blobs/sha256"), s.file(layoutFile, []byte(layoutText)), s.file(indexFile, idx), s.file(blobName(d.Digest), raw))
	if err != nil {
		return err
	}
	for _, b := range blobs(m) {
		if err := s.blob(blobName(b.Digest), b); err != nil {
			return err
		}
	}
	return nil
}

// blobs returns the configuration and the layers, each blob once.
func blobs(m *oci.Manifest) []oci.Descriptor {
	var all []oci.Descriptor
	for _, b := range append([]oci.Descriptor{m.Config}, m.Layers...) {
		if !slices.ContainsFunc(all, func(o oci.Descriptor) bool { return o.Digest == b.Digest }) {
			all = append(all, b)
		}
	}
	return all
}

// docker writes the format of `docker save`: layers as plain tars, in the order of manifest.json.
func (s *saver) docker() error {
	_, m, err := s.manifest()
	if err != nil {
		return err
	}
	img := dockerImage{Config: m.Config.Digest.Encoded() + ".json", RepoTags: s.tags()}
	written := map[string]bool{}
	for _, l := range s.img.Layers {
		name := l.DiffID.Encoded() + ".tar"
		img.Layers = append(img.Layers, name)
		if written[name] {
			continue
		}
		written[name] = true
		if err := s.layer(name, l); err != nil {
			return err
		}
	}
	if err := s.blob(img.Config, m.Config); err != nil {
		return err
	}
	raw, err := json.Marshal([]dockerImage{img})
	if err != nil {
		return err
	}
	return s.file(manifestFile, raw)
}

// tags returns the names of the image that have a tag.
func (s *saver) tags() []string {
	tags := []string{}
	for _, n := range s.img.Names {
		if !strings.Contains(n, "@") && (s.ref.Kind == imageref.Pinned || n == s.ref.Full) {
			tags = append(tags, n)
		}
	}
	return tags
}

func (s *saver) manifest() ([]byte, *oci.Manifest, error) {
	f, err := s.store.Blob(s.img.Digest)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, oci.MaxManifest+1))
	if err != nil {
		return nil, nil, err
	}
	if oci.DigestOf(raw) != s.img.Digest {
		return nil, nil, fmt.Errorf("read manifest %s: %w", s.img.Digest, images.ErrCorrupt)
	}
	m, err := oci.ParseManifest(raw)
	return raw, m, err
}

// header writes the header of a file. The owner is the caller: other tools apply the archive's owners when they extract it, also to
// directories.
func (s *saver) header(name string, size int64) error {
	return s.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, Uid: os.Geteuid(), Gid: os.Getegid()})
}

func (s *saver) directory(name string) error {
	return s.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Uid: os.Geteuid(), Gid: os.Getegid()})
}

func (s *saver) file(name string, b []byte) error {
	if err := s.header(name, int64(len(b))); err != nil {
		return err
	}
	_, err := io.Copy(s.tar, bytes.NewReader(b))
	return err
}

// blob copies a blob unchanged.
func (s *saver) blob(name string, d oci.Descriptor) error {
	b, err := openBlob(s.ctx, s.store, d.Digest)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := s.header(name, d.Size); err != nil {
		return err
	}
	if _, err := io.CopyN(s.tar, b, d.Size); err != nil {
		return fmt.Errorf("read blob %s: %w", d.Digest, err)
	}
	return b.verify()
}

// layer writes a layer decompressed. The tar header needs its length, so layer reads the blob twice.
func (s *saver) layer(name string, l oci.Layer) error {
	var size int64
	err := readLayer(s.ctx, s.store, l, func(r io.Reader) (err error) {
		size, err = io.Copy(io.Discard, r)
		return err
	})
	if err != nil {
		return err
	}
	return readLayer(s.ctx, s.store, l, func(r io.Reader) error {
		if err := s.header(name, size); err != nil {
			return err
		}
		_, err := io.Copy(s.tar, r)
		return err
	})
}

// A blob is a blob of the store that is hashed while it is read.
type blob struct {
	io.Reader
	io.Closer
	hash hash.Hash
	want oci.Digest
}

func openBlob(ctx context.Context, store *images.Store, d oci.Digest) (*blob, error) {
	f, err := store.Blob(d)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	return &blob{io.TeeReader(fsutil.ContextReader(ctx, f), h), f, h, d}, nil
}

// verify reads the rest of the blob and compares the digest.
func (b *blob) verify() error {
	if _, err := io.Copy(io.Discard, b.Reader); err != nil {
		return err
	}
	return compare(b.hash, b.want)
}

func compare(h hash.Hash, want oci.Digest) error {
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != string(want) {
		return fmt.Errorf("read %s: %w: its content does not match its digest", want, images.ErrCorrupt)
	}
	return nil
}

// readLayer calls do with the decompressed layer and then compares its DiffID.
func readLayer(ctx context.Context, store *images.Store, l oci.Layer, do func(io.Reader) error) error {
	f, err := store.Blob(l.Digest)
	if err != nil {
		return err
	}
	defer f.Close()
	z, _, err := decompress(fsutil.ContextReader(ctx, f))
	if err != nil {
		return fmt.Errorf("read layer %s: %w", l.Digest, err)
	}
	defer z.Close()
	h := sha256.New()
	r := io.TeeReader(z, h)
	if err := do(r); err != nil {
		return fmt.Errorf("read layer %s: %w", l.Digest, err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read layer %s: %w", l.Digest, err)
	}
	return compare(h, l.DiffID)
}
