package stored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"demesne/build"
	"demesne/images"
	"demesne/runner"
	"demesne/server"
	"demesne/server/apibackend/kinds"
	"demesne/session"
)

// Build builds an image. Its steps have no more network than the operator's mode, and the limits of its sandboxes. The build
// has a place among the commands that run.
func (b *Images) Build(ctx context.Context, o server.Build, log io.Writer) error {
	done, err := b.Queue.Acquire(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = build.Run(ctx, build.Options{
		Context: o.Dir, File: o.Containerfile, Names: []string{o.Name}, Progress: "plain",
		Egress: b.Policy.Egress, Limits: runner.Limits{Memory: b.Policy.Limits.Memory, Disk: b.Policy.Limits.Disk}, MaxLayers: cmp.Or(o.MaxLayers, -1),
	}, build.Streams{Log: log})
	if err != nil {
		return fmt.Errorf("build %q: %w", o.Name, err)
	}
	return nil
}

// Blobs implements [server.Sandboxes].
func (b *Images) Blobs(_ context.Context, name string) (map[string]int64, error) {
	ref, err := session.ParseImage(name)
	if err != nil {
		return nil, err
	}
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	img, err := c.Store.Lookup(ref)
	if err != nil {
		return nil, kinds.OfImage(err)
	}
	all, rest := map[string]int64{}, img.Size
	for _, l := range img.Layers {
		if _, again := all[string(l.Digest)]; !again {
			all[string(l.Digest)] = l.Size
			rest -= l.Size
		}
	}
	all[string(img.Digest)] = rest // the configuration
	return all, nil
}

// Discard implements [server.Sandboxes]. The stored sandboxes of all namespaces keep their layers.
func (b *Images) Discard(ctx context.Context, name string) error {
	ref, err := session.ParseImage(name)
	if err != nil {
		return err
	}
	err = build.Drop(ctx, ref)
	if errors.Is(err, images.ErrInUse) {
		return kinds.As(err, session.ErrConflict)
	}
	return kinds.OfImage(err)
}
