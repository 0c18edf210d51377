package archive

import (
	"encoding/json"
	"fmt"
	"strings"

	"demesne/images/oci"
)

const (
	typeIndex       = "application/vnd.oci.image.index.v1+json"
	annotationName  = "org.opencontainers.image.ref.name"
	annotationImage = "io.containerd.image.name"
	layoutFile      = "oci-layout"
	layoutText      = `{"imageLayoutVersion":"1.0.0"}`
	indexFile       = "index.json"
)

// index is index.json.
type index struct {
	SchemaVersion int              `json:"schemaVersion"`
	MediaType     string           `json:"mediaType,omitempty"`
	Manifests     []oci.Descriptor `json:"manifests"`
}

// readLayout finds the image with the given tag in a layout, or the only image if tag is "".
func (s *Source) readLayout(tag string) error {
	raw, err := read(s.files, indexFile, oci.MaxManifest)
	if err != nil {
		return s.wrong(err)
	}
	var idx index
	if err := json.Unmarshal(raw, &idx); err != nil {
		return invalid(s.path, "parse %s: %w", indexFile, err)
	}
	d, err := pick(idx, tag)
	if err != nil {
		return &InvalidError{s.path, err}
	}
	if d.Digest == "" { // the index is one image for several platforms
		s.top = document{raw, typeIndex}
		return nil
	}
	if s.top.raw, err = read(s.files, blobName(d.Digest), oci.MaxManifest); err != nil {
		return s.wrong(err)
	}
	if oci.DigestOf(s.top.raw) != d.Digest {
		return invalid(s.path, "the content of manifest %s does not match its digest", d.Digest)
	}
	s.top.mediaType = d.MediaType
	return nil
}

// pick returns the descriptor for the tag. Without a tag it returns the only descriptor. It returns
// an empty one, which stands for the whole index, if each entry has a platform and no name.
func pick(idx index, tag string) (oci.Descriptor, error) {
	var names []string
	platforms := true
	for _, d := range idx.Manifests {
		name := d.Annotations[annotationName]
		if tag != "" && (name == tag || d.Annotations[annotationImage] == tag) {
			return d, nil
		}
		if name != "" {
			names = append(names, name)
		}
		platforms = platforms && d.Platform != nil
	}
	switch {
	case tag != "":
		return oci.Descriptor{}, fmt.Errorf("no image %.100q: the archive has %.1000q", tag, strings.Join(names, ", "))
	case len(idx.Manifests) == 1:
		return idx.Manifests[0], nil
	case len(idx.Manifests) > 1 && platforms && len(names) == 0:
		return oci.Descriptor{}, nil
	}
	return oci.Descriptor{}, fmt.Errorf("%d images: name one of %.1000q", len(idx.Manifests), strings.Join(names, ", "))
}
