package archive

import (
	"context"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// AddLayer stores a file with a tar archive, perhaps compressed, as a layer.
func AddLayer(ctx context.Context, store *images.Store, file string) (oci.Layer, error) {
	return importTar(ctx, store, file)
}

// Config returns the JSON of an image's configuration, as the image has it.
func Config(ctx context.Context, store *images.Store, img *images.Image) ([]byte, error) {
	s := &saver{ctx: ctx, store: store, img: img}
	_, m, err := s.manifest()
	if err != nil {
		return nil, err
	}
	return readConfig(ctx, store, m.Config)
}

// Publish stores a configuration and a manifest for layers that the store has, and names the image.
func Publish(ctx context.Context, store *images.Store, ref imageref.Ref, config []byte, layers []oci.Layer) (oci.Digest, error) {
	all := make([]oci.Descriptor, len(layers))
	for i, l := range layers {
		all[i] = oci.Descriptor{MediaType: ociType(l.MediaType), Digest: l.Digest, Size: l.Size}
	}
	return publish(ctx, store, ref, config, all)
}
