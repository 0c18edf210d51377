package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/internal/text"
	"demesne/session"
)

// firstAnswer is how long a registry may take until it describes an image. A name that was mistyped is often asked for on
// a machine without a network, where nothing answers.
const firstAnswer = 10 * time.Second

// find returns an image of the store, pulled if necessary. A Containerfile may be a stranger's, so it names no file of this
// machine: neither a directory, nor a layout, nor an archive.
func (b *Builder) find(ctx context.Context, name, platform string) (*images.Image, error) {
	ref, err := session.ParseImage(name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", name, err)
	}
	if !ref.Stored() || ref.Local() {
		return nil, text.Hinted(fmt.Errorf("image %q: a Containerfile cannot name files of this machine", name), "demesne import gives an archive a name")
	}
	policy := images.PullMissing
	switch {
	case b.Stored != nil:
		policy = images.PullNever
		if own := b.Stored[ref.Full]; own != "" {
			name = own
			if ref, err = session.ParseImage(own); err != nil {
				return nil, fmt.Errorf("image %q: %w", own, err)
			}
		}
	case b.Pull:
		policy = images.PullAlways
	}
	if len(b.Allowed) > 0 {
		ok, stored := imageref.Permitted(name, b.Allowed)
		if !ok {
			return nil, text.Hinted(fmt.Errorf("image %q: not allowed", name), "--allow-image lists what this build may use, in addition to demesne's catalogue")
		}
		if stored {
			policy = images.PullNever
		}
	}
	c := *b.images
	c.Platform = platform
	on, done := b.show.pulling(name)
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if ref.Kind == imageref.Registry {
		silence := time.AfterFunc(firstAnswer, func() { cancel(fmt.Errorf("no answer from the registry for %s", firstAnswer)) })
		defer silence.Stop()
		show := on
		on = func(e events.Event) {
			if e.Event != events.Retry {
				silence.Stop()
			}
			show(e)
		}
	}
	img, err := c.Ensure(ctx, ref, policy, on)
	if err == nil {
		err = b.hold(ctx, &c, img, on)
	}
	if errors.Is(err, images.ErrNotFound) {
		err = session.NamedImage(ref, err)
	}
	if err != nil {
		err = b.suggested(ref, err)
	}
	return img, err
}

// hold keeps an image and its layers from gc until this process ends. A layer that gc dropped is fetched again.
func (b *Builder) hold(ctx context.Context, c *images.Client, img *images.Image, on func(events.Event)) error {
	used, err := c.Store.Hold(ctx, img.Digest)
	if err != nil {
		return err
	}
	b.held.Store(used, true)
	return c.Keep(ctx, img, on)
}

// suggested adds the name of the store that was perhaps meant.
func (b *Builder) suggested(ref imageref.Ref, err error) error {
	if _, missing := b.images.Store.Lookup(ref); !errors.Is(missing, images.ErrNotFound) {
		return err
	}
	before, after, _ := strings.Cut(ref.Full, ref.Given)
	all, lerr := b.images.Store.List()
	if lerr != nil {
		return err
	}
	var names []string
	for _, i := range all {
		for _, n := range i.Names {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(n, before), after))
		}
	}
	if near := text.Nearest(ref.Given, names); near != "" {
		return text.Hinted(err, "did you mean %q? It is in the store", near)
	}
	return err
}
