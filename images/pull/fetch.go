package pull

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"golang.org/x/sync/errgroup"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// Fetch downloads the blobs of an image's layers that were dropped, and protects all of its layers'
// blobs from removal until o.Store is closed. Without dropped blobs it contacts no registry. The image
// was allowed when it was pulled, and its content is compared with the digests, so policy.json is not
// asked again.
func Fetch(ctx context.Context, img *images.Image, o Options) error {
	for {
		dropped, err := o.Store.Keep(ctx, img)
		if err != nil || len(dropped) == 0 {
			return err
		}
		if err := newPuller(o).fetch(ctx, dropped); err != nil {
			return fmt.Errorf("fetch layers that gc dropped: %w", Speak(err))
		}
	}
}

// fetch downloads layers, those with the same sources together. It leaves out a blob that another
// process fetched meanwhile: the next Keep finds it.
func (p *puller) fetch(ctx context.Context, layers []oci.Layer) error {
	for _, l := range layers {
		p.Report(events.Event{Event: events.Layer, State: events.Waiting, Digest: l.Digest, Total: l.Size})
	}
	for len(layers) > 0 {
		from := p.Store.Dropped(layers[0].Digest)
		var same, rest []oci.Layer
		for i, l := range layers {
			if i == 0 || slices.Equal(p.Store.Dropped(l.Digest), from) {
				same = append(same, l)
			} else {
				rest = append(rest, l)
			}
		}
		if from != nil {
			if err := p.fetchFrom(ctx, from, same); err != nil {
				return err
			}
		}
		layers = rest
	}
	return nil
}

// fetchFrom downloads layers from the first source that answers.
func (p *puller) fetchFrom(ctx context.Context, sources []string, layers []oci.Layer) error {
	all, err := p.sources(sources)
	if err != nil {
		return err
	}
	src, err := p.dial(ctx, all)
	if err != nil {
		return err
	}
	defer src.Close()
	p.src = src
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.Jobs)
	for _, l := range layers {
		group.Go(func() error { return p.layer(ctx, l) })
	}
	return group.Wait()
}

// sources returns the references to try. A name may have been pulled as a short name that
// registries.conf resolved, so what it resolves to now is tried first.
func (p *puller) sources(names []string) ([]reference.Named, error) {
	var all []reference.Named
	for _, name := range names {
		full, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			return nil, errorf(events.CodeInvalid, "parse reference %q: %w", name, err)
		}
		short := imageref.Ref{Kind: imageref.Registry, Given: reference.FamiliarString(full), Full: name}
		if word, _, _ := strings.Cut(short.Given, "@"); !inCatalogue(word) {
			if more, err := candidates(p.sys, short); err == nil {
				all = append(all, more...)
			}
		}
		if !slices.ContainsFunc(all, func(n reference.Named) bool { return n.String() == full.String() }) {
			all = append(all, full)
		}
	}
	if len(all) == 0 {
		return nil, errorf(events.CodeInvalid, "fetch layers: no registry is known that has them")
	}
	return all, nil
}
