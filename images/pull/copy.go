package pull

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
	"golang.org/x/sync/errgroup"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// copy copies the image of src into the store, under the name ref.
func (p *puller) copy(ctx context.Context, src Source, ref imageref.Ref) (oci.Digest, error) {
	p.src = src
	defer p.stored.close()
	if named, err := reference.ParseNormalizedNamed(ref.Full); err == nil {
		p.repository = named.Name()
	}
	r := images.Record{Ref: ref}
	if !p.imports {
		r.Pulled = time.Now()
	}
	img, index, err := p.choose(ctx)
	if err != nil {
		return "", err
	}
	r.Index = index
	if err := p.retry(ctx, func(ctx context.Context) error { return allow(ctx, p.sys, img) }); err != nil {
		return "", err
	}
	raw, mediaType, err := p.manifest(ctx, img)
	if err != nil {
		return "", err
	}
	m, err := parse(raw, mediaType)
	if err != nil {
		return "", err
	}
	p.annotations = map[oci.Digest]map[string]string{}
	for _, l := range m.Layers {
		p.annotations[l.Digest] = l.Annotations
	}
	if err := p.blobs(ctx, m); err != nil {
		return "", err
	}
	if r.Manifest, err = p.keep(ctx, raw, m); err != nil {
		return "", err
	}
	if _, err := p.Store.Add(ctx, r); err != nil {
		return "", err
	}
	return r.Manifest.Digest, nil
}

// choose returns the image for the platform, and the digest of the index that contains it, or "".
func (p *puller) choose(ctx context.Context) (types.UnparsedImage, oci.Digest, error) {
	top := p.src.Unparsed(nil)
	raw, mediaType, err := p.manifest(ctx, top)
	if err != nil || !manifest.MIMETypeIsMultiImage(mediaType) {
		return top, "", err
	}
	chosen, err := p.Platform.choose(p.sys, raw, mediaType)
	if err != nil {
		return nil, "", err
	}
	return p.src.Unparsed(&chosen), oci.DigestOf(raw), nil
}

// manifest reads the manifest of img. The library caches it in img.
func (p *puller) manifest(ctx context.Context, img types.UnparsedImage) (raw []byte, mediaType string, err error) {
	err = p.retry(ctx, func(ctx context.Context) error {
		raw, mediaType, err = img.Manifest(ctx)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read manifest: %w", err)
	}
	if len(raw) > oci.MaxManifest {
		return nil, "", errorf(events.CodeUnsupported, "read manifest: longer than %d bytes", oci.MaxManifest)
	}
	// The registry's media type counts if it is specific. Many registries send only a generic
	// JSON type.
	if mediaType == "" || manifest.NormalizedMIMEType(mediaType) != mediaType {
		mediaType = manifest.GuessMIMEType(raw)
	}
	return raw, mediaType, nil
}

// parse parses an image's manifest and checks its media types.
func parse(raw []byte, mediaType string) (*oci.Manifest, error) {
	if !json.Valid(raw) {
		return nil, errorf(events.CodeNoImage, "manifest: not JSON, but %d bytes of another kind", len(raw))
	}
	if mediaType != oci.TypeOCIManifest && mediaType != oci.TypeDockerManifest {
		return nil, errorf(events.CodeUnsupported, "manifest: unsupported media type %q", clean(mediaType))
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return nil, errorf(events.CodeUnsupported, "%w", err)
	}
	if !configTypes[m.Config.MediaType] {
		return nil, errorf(events.CodeNoImage, "image configuration: unsupported media type %q", clean(m.Config.MediaType))
	}
	for _, l := range m.Layers {
		if !layerTypes[l.MediaType] {
			return nil, errorf(events.CodeUnsupported, "layer %s: unsupported media type %q", l.Digest, clean(l.MediaType))
		}
	}
	return m, nil
}

var configTypes = map[string]bool{
	"application/vnd.oci.image.config.v1+json":       true,
	"application/vnd.docker.container.image.v1+json": true,
}

// layerTypes are the media types that can be unpacked. Others are excluded on purpose: foreign
// and non-distributable layers come from URLs, and encrypted layers need keys.
var layerTypes = map[string]bool{
	"application/vnd.oci.image.layer.v1.tar":            true,
	"application/vnd.oci.image.layer.v1.tar+gzip":       true,
	"application/vnd.oci.image.layer.v1.tar+zstd":       true,
	"application/vnd.docker.image.rootfs.diff.tar":      true,
	"application/vnd.docker.image.rootfs.diff.tar.gzip": true,
	"application/vnd.docker.image.rootfs.diff.tar.zstd": true,
}

// blobs downloads the configuration and, if the platform matches, the layers.
func (p *puller) blobs(ctx context.Context, m *oci.Manifest) error {
	config, err := p.config(ctx, m)
	if err != nil {
		return err
	}
	if err := p.Platform.accepts(config.Config); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.Jobs)
	all := layers(m, config)
	for _, l := range all { // first of all layers, so that the total is known from the start
		p.Report(events.Event{Event: events.Layer, State: events.Waiting, Digest: l.Digest, Total: l.Size})
	}
	for _, l := range all {
		group.Go(func() error { return p.layer(ctx, l) })
	}
	return group.Wait()
}

func (p *puller) config(ctx context.Context, m *oci.Manifest) (*oci.ImageConfig, error) {
	if _, err := p.blob(ctx, m.Config); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	f, err := p.Store.Blob(m.Config.Digest)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, oci.MaxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if oci.DigestOf(raw) != m.Config.Digest {
		return nil, fmt.Errorf("read configuration %s: %w", m.Config.Digest, images.ErrCorrupt)
	}
	config, err := oci.ParseConfig(raw, len(m.Layers))
	if err != nil {
		// Its digest is the manifest's, so it is an image's: quiet must not hide the reason.
		return nil, errorf(events.CodeUnsupported, "%v", err)
	}
	return config, nil
}

// layers returns each layer once. An image may contain the same layer twice, usually an empty
// one.
func layers(m *oci.Manifest, c *oci.ImageConfig) []oci.Layer {
	seen := map[oci.Digest]bool{}
	var all []oci.Layer
	for i, l := range m.Layers {
		if !seen[c.DiffIDs[i]] || !seen[l.Digest] {
			all = append(all, oci.Layer{Digest: l.Digest, DiffID: c.DiffIDs[i], Size: l.Size, MediaType: l.MediaType})
		}
		seen[c.DiffIDs[i]], seen[l.Digest] = true, true
	}
	return all
}

func (p *puller) layer(ctx context.Context, l oci.Layer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	present, err := p.blob(ctx, oci.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size, Annotations: p.annotations[l.Digest]})
	if err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	state := events.Pulled
	if present {
		state = events.Present
	}
	p.Report(events.Event{Event: events.Layer, State: state, Digest: l.Digest, Bytes: l.Size, Total: l.Size, Layer: &l})
	return nil
}

// keep stores a manifest byte for byte, so that its digest does not change.
func (p *puller) keep(ctx context.Context, raw []byte, m *oci.Manifest) (oci.Descriptor, error) {
	d, size, err := p.Store.Put(ctx, bytes.NewReader(raw), oci.MaxManifest)
	return oci.Descriptor{MediaType: m.MediaType, Digest: d, Size: size}, err
}
