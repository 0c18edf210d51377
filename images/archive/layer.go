package archive

import (
	"context"
	"io"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// AddLayer stores a layer that demesne wrote: a tar archive that is not compressed. Unlike an imported one it is not
// parsed. end is called at the end of r; nothing is stored if it returns an error.
func AddLayer(ctx context.Context, store *images.Store, r io.Reader, end func() error) (oci.Layer, error) {
	d, size, err := store.Put(ctx, &judged{r, end}, maxLayer)
	return oci.Layer{Digest: d, DiffID: d, Size: size, MediaType: mediaTypes[plain]}, err
}

// Config returns an image's configuration as JSON, unchanged.
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
