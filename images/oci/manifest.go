package oci

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Limits of a manifest. Real manifests use about a hundredth of them.
const (
	MaxManifest = 4 << 20
	MaxConfig   = 8 << 20
	MaxLayers   = 512
	MaxBlob     = 1 << 40
)

// The media types of manifests that the store keeps. Schema 1 is not supported because it does not
// pin a configuration. An index is resolved by the puller.
const (
	TypeOCIManifest    = "application/vnd.oci.image.manifest.v1+json"
	TypeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// A Layer is one layer, as its image describes it.
type Layer struct {
	Digest    Digest `json:"digest"` // of the blob
	DiffID    Digest `json:"diffid"` // of the uncompressed tar
	Size      int64  `json:"size"`   // of the blob
	MediaType string `json:"type"`
}

// A Manifest is a parsed manifest that passed the checks of ParseManifest.
type Manifest struct {
	MediaType string
	Config    Descriptor
	Layers    []Descriptor // bottom first
}

// A Descriptor names a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// Blobs returns the configuration and the layers, each blob once.
func (m *Manifest) Blobs() []Descriptor {
	all := append([]Descriptor{m.Config}, m.Layers...)
	seen := map[Digest]bool{}
	return slices.DeleteFunc(all, func(d Descriptor) bool {
		again := seen[d.Digest]
		seen[d.Digest] = true
		return again
	})
}

// ParseManifest parses an OCI manifest or a Docker schema 2 manifest. It ignores unknown fields.
// It checks the digests and sizes of the known ones.
func ParseManifest(b []byte) (*Manifest, error) {
	var raw struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Config        Descriptor        `json:"config"`
		Layers        []Descriptor      `json:"layers"`
		Manifests     []json.RawMessage `json:"manifests"`
	}
	if len(b) > MaxManifest {
		return nil, fmt.Errorf("parse manifest: longer than %d bytes", MaxManifest)
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("parse manifest: %w", err)
	}
	m := &Manifest{MediaType: raw.MediaType, Config: raw.Config, Layers: raw.Layers}
	if m.MediaType == "" {
		m.MediaType = TypeOCIManifest // optional in OCI, required by Docker
	}
	switch {
	case raw.SchemaVersion != 2:
		return nil, fmt.Errorf("parse manifest: schema version %d is not supported", raw.SchemaVersion)
	case m.MediaType != TypeOCIManifest && m.MediaType != TypeDockerManifest:
		return nil, fmt.Errorf("parse manifest: media type %q is not supported", Clip(m.MediaType))
	case raw.Manifests != nil: // an ambiguous document: CVE-2021-41190
		return nil, fmt.Errorf("parse manifest: it also has the fields of an index")
	case len(m.Layers) > MaxLayers:
		return nil, fmt.Errorf("parse manifest: %d layers, more than %d", len(m.Layers), MaxLayers)
	case m.Config.Size > MaxConfig:
		return nil, fmt.Errorf("parse manifest: a configuration of %d bytes, more than %d", m.Config.Size, MaxConfig)
	}
	return m, m.check()
}

func (m *Manifest) check() error {
	sizes := map[Digest]int64{}
	for _, d := range append([]Descriptor{m.Config}, m.Layers...) {
		if d.Digest == "" {
			return fmt.Errorf("parse manifest: a blob without a digest")
		}
		if d.Size < 0 || d.Size > MaxBlob {
			return fmt.Errorf("parse manifest: blob %s: a size of %d bytes", d.Digest, d.Size)
		}
		if n, ok := sizes[d.Digest]; ok && n != d.Size {
			return fmt.Errorf("parse manifest: blob %s: listed with two sizes", d.Digest)
		}
		sizes[d.Digest] = d.Size
	}
	return nil
}

// ImageConfig is a parsed configuration that passed the checks of ParseConfig.
type ImageConfig struct {
	Config
	DiffIDs []Digest // of the layers, bottom first
	Created time.Time
}

// ParseConfig parses the configuration of an image with the given number of layers. It keeps only [Variables] of the
// environment.
func ParseConfig(b []byte, layers int) (*ImageConfig, error) {
	var raw struct {
		Created      any // RFC 3339; some tools write something else
		Architecture string
		Variant      string
		OS           string
		Config       Config
		RootFS       struct {
			DiffIDs []Digest `json:"diff_ids"`
		}
	}
	if len(b) > MaxConfig {
		return nil, fmt.Errorf("parse configuration: longer than %d bytes", MaxConfig)
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("parse configuration: %w", err)
	}
	if n := len(raw.RootFS.DiffIDs); n != layers {
		return nil, fmt.Errorf("parse configuration: %d diff ids for %d layers", n, layers)
	}
	if slices.Contains(raw.RootFS.DiffIDs, "") {
		return nil, fmt.Errorf("parse configuration: an empty diff id")
	}
	c := &ImageConfig{Config: raw.Config, DiffIDs: raw.RootFS.DiffIDs}
	c.Env = Variables(c.Env)
	c.Architecture, c.Variant, c.OS = raw.Architecture, raw.Variant, raw.OS
	if s, ok := raw.Created.(string); ok {
		c.Created, _ = time.Parse(time.RFC3339Nano, s)
	}
	return c, nil
}
