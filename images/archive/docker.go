package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"demesne/images/oci"
	"demesne/internal/fsutil"
)

const (
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	manifestFile = "manifest.json"
)

// dockerImage is an image in the manifest.json of `docker save`.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// readDocker finds an image and makes a manifest for it, because such an archive has no OCI manifest. A
// layer is usually a plain tar, whose digest is its DiffID. A compressed layer is read to compute its
// digest.
func (s *Source) readDocker(ctx context.Context, tag string) error {
	img, err := s.findDocker(tag)
	if err != nil {
		return err
	}
	config, err := read(s.files, img.Config, oci.MaxConfig)
	if err != nil {
		return s.wrong(err)
	}
	parsed, err := oci.ParseConfig(config, len(img.Layers))
	if err != nil {
		return &InvalidError{s.path, err}
	}
	c := oci.Descriptor{MediaType: typeConfig, Digest: oci.DigestOf(config), Size: int64(len(config))}
	s.made = map[oci.Digest][]byte{c.Digest: config}
	s.names = map[oci.Digest]string{}
	layers := []oci.Descriptor{}
	for i, name := range img.Layers {
		l, err := s.describe(ctx, name, parsed.DiffIDs[i])
		if err != nil {
			return err
		}
		s.names[l.Digest] = name
		layers = append(layers, l)
	}
	s.top.mediaType = oci.TypeOCIManifest
	s.top.raw, err = marshalManifest(c, layers)
	return err
}

// findDocker returns the image with the given tag, or the only image if tag is "".
func (s *Source) findDocker(tag string) (dockerImage, error) {
	raw, err := read(s.files, manifestFile, oci.MaxManifest)
	if err != nil {
		return dockerImage{}, s.wrong(err)
	}
	var all []dockerImage
	if err := json.Unmarshal(raw, &all); err != nil {
		return dockerImage{}, invalid(s.path, "parse %s: %w", manifestFile, err)
	}
	var names []string
	for _, img := range all {
		names = append(names, img.RepoTags...)
		if tag != "" && slices.ContainsFunc(img.RepoTags, func(t string) bool { return t == tag || t == tag+":latest" }) {
			return img, nil
		}
	}
	if tag == "" && len(all) == 1 {
		return all[0], nil
	}
	return dockerImage{}, invalid(s.path, "none of the %d images is %.100q: the archive has %.1000q", len(all), tag, strings.Join(names, ", "))
}

// describe returns the descriptor of a layer's blob.
func (s *Source) describe(ctx context.Context, name string, diffID oci.Digest) (oci.Descriptor, error) {
	m, err := s.open(name)
	if err != nil {
		return oci.Descriptor{}, s.wrong(err)
	}
	defer m.Close()
	r := bufio.NewReaderSize(m, 64<<10)
	f := sniff(r)
	l := oci.Descriptor{MediaType: mediaTypes[f], Digest: diffID, Size: m.Size()}
	switch {
	case f == plain:
		return l, nil
	case l.MediaType == "":
		return l, invalid(s.path, "layer %.100q: unsupported compression", name)
	}
	h := sha256.New()
	if _, err := io.Copy(h, fsutil.ContextReader(ctx, r)); err != nil {
		return l, err
	}
	l.Digest, err = oci.ParseDigest("sha256:" + hex.EncodeToString(h.Sum(nil)))
	return l, err
}

// marshalManifest encodes an OCI manifest.
func marshalManifest(config oci.Descriptor, layers []oci.Descriptor) ([]byte, error) {
	raw, err := json.Marshal(struct {
		SchemaVersion int              `json:"schemaVersion"`
		MediaType     string           `json:"mediaType"`
		Config        oci.Descriptor   `json:"config"`
		Layers        []oci.Descriptor `json:"layers"`
	}{2, oci.TypeOCIManifest, config, layers})
	if err != nil {
		return nil, fmt.Errorf("make manifest: %w", err)
	}
	return raw, nil
}

func newSection(b []byte, offset int64) io.Reader {
	return bytes.NewReader(b[min(offset, int64(len(b))):])
}
