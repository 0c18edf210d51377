package pull

import (
	"context"

	"go.podman.io/image/v5/manifest"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// A FeatureBlob is the archive of a dev container feature (containers.dev), which a registry has as an artifact of one blob.
type FeatureBlob struct {
	Digest  oci.Digest // of the artifact's manifest
	Archive oci.Descriptor
}

const (
	featureLayer = "application/vnd.devcontainers.layer.v1+tar"
	maxFeature   = 64 << 20 // bytes of an archive; usual ones have some kilobytes
)

// Feature downloads the archive of a feature into the store, which keeps it until it is closed. The caller unpacks it, and
// trusts nothing in it.
func Feature(ctx context.Context, ref imageref.Ref, o Options) (FeatureBlob, error) {
	f, err := newPuller(o).feature(ctx, ref)
	return f, Speak(err)
}

func (p *puller) feature(ctx context.Context, ref imageref.Ref) (f FeatureBlob, err error) {
	all, err := candidates(p.sys, ref)
	if err != nil {
		return f, err
	}
	if p.src, err = p.dial(ctx, all); err != nil {
		return f, err
	}
	defer p.src.Close()
	top := p.src.Unparsed(nil)
	raw, mediaType, err := p.manifest(ctx, top)
	if err != nil {
		return f, err
	}
	if manifest.MIMETypeIsMultiImage(mediaType) {
		return f, errorf(events.CodeNoImage, "an index of images, and not a feature")
	}
	if err := p.retry(ctx, func(ctx context.Context) error { return allow(ctx, p.sys, top) }); err != nil {
		return f, err
	}
	m, err := oci.ParseManifest(raw)
	switch {
	case err != nil:
		return f, errorf(events.CodeUnsupported, "%w", err)
	case len(m.Layers) != 1 || m.Layers[0].MediaType != featureLayer:
		return f, errorf(events.CodeNoImage, "not a feature: it has no single archive of type %q", featureLayer)
	case m.Layers[0].Size > maxFeature:
		return f, errorf(events.CodeUnsupported, "an archive of %d bytes, more than %d", m.Layers[0].Size, maxFeature)
	}
	f = FeatureBlob{Digest: oci.DigestOf(raw), Archive: m.Layers[0]}
	_, err = p.blob(ctx, f.Archive)
	return f, err
}
