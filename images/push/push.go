package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"go.podman.io/image/v5/docker/reference"
	"golang.org/x/sync/errgroup"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
)

// Image pushes an image of the store to the tag that to names. The store has all its blobs: see [pull.Fetch]. It returns
// the digest of the manifest that the registry then has under the tag.
func Image(ctx context.Context, img *images.Image, to imageref.Ref, o Options) (oci.Digest, error) {
	d, err := newPusher(o).image(ctx, img, to)
	if status, ok := errors.AsType[*statusError](err); ok && status.StatusCode >= http.StatusInternalServerError {
		err = &events.Failure{Code: events.CodeUnreachable, Text: "the registry failed: " + pull.OneLine(err),
			Hint: "its log has the reason, such as a full disk; another push sends only what is missing"}
		return "", &pull.Error{Code: events.CodeUnreachable, Err: err}
	}
	return d, pull.Speak(err)
}

func (p *pusher) image(ctx context.Context, img *images.Image, to imageref.Ref) (oci.Digest, error) {
	named, err := reference.ParseNormalizedNamed(to.Full)
	if err != nil || to.Digest() != "" {
		return "", errorf(events.CodeInvalid, "destination %q: not a name with a tag", to)
	}
	if p.Level, err = p.Format.level(p.Level); err != nil {
		return "", err
	}
	m, err := readManifest(p.Store, img)
	if err != nil {
		return "", err
	}
	if p.to, err = p.dial(ctx, named); err != nil {
		return "", err
	}
	sent, err := p.blobs(ctx, img, m)
	if err != nil {
		return "", err
	}
	raw, mediaType, err := m.with(sent)
	if err != nil {
		return "", err
	}
	d := oci.DigestOf(raw)
	if err := p.manifest(ctx, reference.TagNameOnly(named).(reference.Tagged).Tag(), raw, mediaType); err != nil {
		return "", err
	}
	if p.Signer != nil {
		if err := p.sign(ctx, reference.TagNameOnly(named).String(), d); err != nil {
			return "", fmt.Errorf("sign image: %w", err)
		}
	}
	return d, nil
}

// blobs sends the configuration and the layers, each blob once. It returns the layers as sent, by the digest in the store.
func (p *pusher) blobs(ctx context.Context, img *images.Image, m *document) (map[oci.Digest]oci.Descriptor, error) {
	var layers []oci.Layer
	for _, l := range img.Layers {
		if !slices.ContainsFunc(layers, func(o oci.Layer) bool { return o.Digest == l.Digest }) {
			layers = append(layers, l)
		}
	}
	for _, l := range layers { // first of all layers, so that the total is known from the start
		p.Report(events.Event{Event: events.Layer, State: events.Waiting, Digest: l.Digest, Total: l.Size})
	}
	var mu sync.Mutex
	sent := map[oci.Digest]oci.Descriptor{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.Jobs)
	group.Go(func() error {
		_, err := p.blob(ctx, p.stored(m.Config, nil))
		if err != nil {
			return fmt.Errorf("push configuration: %w", err)
		}
		return nil
	})
	for _, l := range layers {
		group.Go(func() error {
			d, err := p.layer(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			sent[l.Digest] = d
			return err
		})
	}
	return sent, group.Wait()
}

// layer sends a layer in the format that the options ask for.
func (p *pusher) layer(ctx context.Context, l oci.Layer) (oci.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return oci.Descriptor{}, err
	}
	c := p.content(l, false)
	state, err := p.blob(ctx, c)
	if errors.Is(err, images.ErrCorrupt) && c.form != "" && !c.made {
		_ = p.copies.Forget(ctx, c.known().Digest) // it cannot harm any more: this push compresses the layer again
		c = p.content(l, true)
		state, err = p.blob(ctx, c)
	}
	if err != nil {
		return oci.Descriptor{}, fmt.Errorf("push layer %s: %w", l.Digest, err)
	}
	d := c.known()
	// Best effort: without the record, a later push asks the registry again.
	_ = p.copies.Put(ctx, l.Digest, images.Copy{Form: c.form, Digest: d.Digest, Size: d.Size, Repositories: []string{p.to.name}})
	p.Report(events.Event{Event: events.Layer, State: state, Digest: l.Digest, Bytes: l.Size, Total: l.Size,
		Layer: &oci.Layer{Digest: d.Digest, DiffID: l.DiffID, Size: d.Size, MediaType: d.MediaType}})
	return d, nil
}

// manifest gives the manifest the tag.
func (p *pusher) manifest(ctx context.Context, tag string, raw []byte, mediaType string) error {
	err := p.retry(ctx, "", func(ctx context.Context) error { return p.to.putManifest(ctx, tag, mediaType, raw) })
	if err != nil {
		return fmt.Errorf("push manifest: %w", err)
	}
	return nil
}

func readManifest(store *images.Store, img *images.Image) (*document, error) {
	f, err := store.Blob(img.Digest)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, oci.MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if oci.DigestOf(raw) != img.Digest {
		return nil, fmt.Errorf("read manifest %s: %w", img.Digest, images.ErrCorrupt)
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return nil, err
	}
	return &document{m, bytes.Clone(raw)}, nil
}
