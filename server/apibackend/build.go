package apibackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"demesne/build"
	"demesne/images"
	"demesne/server"
	"demesne/session"
)

// Build executes demesne-build, which links the parser of Containerfiles. Its steps have no more network than the
// operator's mode, and the limits of its sandboxes. The build has a place among the commands that run.
func (b *Backend) Build(ctx context.Context, o server.Build, log io.Writer) error {
	done, err := b.queue.Acquire(ctx)
	if err != nil {
		return err
	}
	defer done()
	args := []string{"--progress", "plain", "--egress", b.policy.Egress}
	for flag, most := range map[string]int64{"--memory": b.policy.Limits.Memory, "--disk": b.policy.Limits.Disk} {
		switch {
		case most > 0:
			args = append(args, flag, strconv.FormatInt(most, 10))
		case most < 0:
			args = append(args, flag, "none")
		}
	}
	most := "none"
	if o.MaxLayers > 0 {
		most = strconv.FormatInt(o.MaxLayers, 10)
	}
	if err := build.Execute(ctx, append(args, "--max-layers", most, "-t", o.Name, "-f", o.Containerfile, o.Dir), nil, log, log); err != nil {
		return fmt.Errorf("build %q: %w", o.Name, err)
	}
	return nil
}

// Blobs implements [server.Sandboxes].
func (b *Backend) Blobs(_ context.Context, name string) (map[string]int64, error) {
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
		return nil, imageError(err)
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
func (b *Backend) Discard(ctx context.Context, name string) error {
	ref, err := session.ParseImage(name)
	if err != nil {
		return err
	}
	err = build.Drop(ctx, ref)
	if errors.Is(err, images.ErrInUse) {
		return kinded{err, session.ErrConflict}
	}
	return imageError(err)
}
