package push

import (
	"encoding/json"
	"fmt"

	"demesne/images/oci"
)

const (
	typeConfig    = "application/vnd.oci.image.config.v1+json"
	typeLayer     = "application/vnd.oci.image.layer.v1.tar"
	typeOldLayer  = "application/vnd.docker.image.rootfs.diff.tar"
	gzipSuffix    = "+gzip"
	zstdSuffix    = "+zstd"
	oldGzipSuffix = ".gzip"
	oldZstdSuffix = ".zstd"
)

// with returns the manifest for the layers as they were sent, and its media type. If all were sent as the store has them,
// that is the manifest of the store, byte for byte. Otherwise it is an OCI manifest with the same configuration, and with
// all other fields of the image's manifest.
func (m *document) with(sent map[oci.Digest]oci.Descriptor) ([]byte, string, error) {
	changed := false
	layers := make([]oci.Descriptor, len(m.Layers))
	for i, l := range m.Layers {
		to := sent[l.Digest]
		changed = changed || to.Digest != l.Digest
		layers[i] = oci.Descriptor{MediaType: to.MediaType, Digest: to.Digest, Size: to.Size, Annotations: l.Annotations}
	}
	if !changed {
		return m.raw, m.MediaType, nil
	}
	for i := range layers {
		layers[i].MediaType = typeLayer + formatOf(layers[i].MediaType).suffix()
	}
	config := m.Config
	config.MediaType = typeConfig
	fields := map[string]any{}
	if err := json.Unmarshal(m.raw, &fields); err != nil {
		return nil, "", fmt.Errorf("parse manifest: %w", err)
	}
	fields["mediaType"], fields["config"], fields["layers"] = oci.TypeOCIManifest, config, layers
	raw, err := json.Marshal(fields) // in the order of the names: the same bytes each time
	if err != nil {
		return nil, "", fmt.Errorf("write manifest: %w", err)
	}
	return raw, oci.TypeOCIManifest, nil
}
