package stored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"demesne/build"
	"demesne/client"
	"demesne/images"
	"demesne/images/imageref"
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

// BuildImage implements [rest.Images]. Its steps have the bounds of Build, and it may name the images that the operator lists.
// Values of ARGs are never the server's own variables.
func (b *Images) BuildImage(ctx context.Context, q client.BuildRequest, uploaded *os.File, log io.Writer) (*client.Built, error) {
	o := build.Options{
		Context: "-", File: q.File, Names: []string{q.Tag}, Target: q.Target, Args: q.Args, NoCache: q.NoCache, Pull: q.Pull, Progress: "plain",
		Egress: b.Policy.Egress, Limits: runner.Limits{Memory: b.Policy.Limits.Memory, Disk: b.Policy.Limits.Disk}, Images: imageref.Entries(b.Policy.AllowedImages),
	}
	for _, arg := range q.Args {
		if name, _, ok := strings.Cut(arg, "="); !ok || name == "" {
			return nil, fmt.Errorf("%w: arg: not NAME=VALUE", session.ErrInvalid)
		}
	}
	if q.File != "" && !filepath.IsLocal(q.File) {
		return nil, fmt.Errorf("%w: file %q: not a path in the context", session.ErrInvalid, q.File)
	}
	if q.Context != "" {
		info, err := b.Policy.HostPath(Asker(ctx), q.Context, false)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%w: context %q: not a directory", session.ErrInvalid, q.Context)
		}
		if err != nil {
			return nil, kinds.Invalid(err)
		}
		if o.Context = q.Context; q.File != "" {
			o.File = filepath.Join(q.Context, q.File)
		}
	}
	done, err := b.Queue.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	built, err := build.Run(ctx, o, build.Streams{Stdin: uploaded, Log: log})
	if _, ok := errors.AsType[*build.Failure](err); ok {
		err = kinds.As(err, session.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return &client.Built{Tag: q.Tag, Digest: built.Digest}, nil
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
