package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/session"
	"demesne/images"
	"demesne/images/archive"
	"demesne/images/build"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner"
)

// box is the sandbox in which a stage executes its steps.
type box struct {
	*builder
	*session.Sandbox
	engine session.Engine
	has    []oci.Layer // the layers of its files
	taken  int         // how many of them it made itself, and were taken
	online bool        // it has a network
}

// ready provides a sandbox whose files are those of the stage, with or without a network as the step requires.
func (s *stage) ready(ctx context.Context, step *build.Step) error {
	online := step.Run != nil && step.Run.Network != "none" && s.egress.Mode != session.NoEgress
	if s.box != nil && equalLayers(s.box.has, s.layers) && (s.box.online == online || step.Run == nil) {
		return nil
	}
	if s.box != nil {
		s.box.close()
	}
	var err error
	s.box, err = s.open(ctx, s.layers, online)
	return err
}

// open makes a sandbox of layers that the store has.
func (b *builder) open(ctx context.Context, layers []oci.Layer, online bool) (*box, error) {
	d, err := b.intermediate(ctx, layers)
	if err != nil {
		return nil, err
	}
	c := session.CreateOptions{
		Image: imageref.Ref{Kind: imageref.Pinned, Given: string(d), Full: string(d)}, Pull: images.PullNever, User: "0:0",
		Spec: runner.Spec{Aside: true, Limits: b.limits, TTL: runner.Duration(time.Hour)},
	}
	if online {
		c.Egress = b.egress
	}
	sb, err := b.sessions.Create(ctx, c, session.Callbacks{Note: b.show.note})
	if err != nil {
		return nil, err
	}
	e, err := b.sessions.Engine(ctx)
	return &box{builder: b, Sandbox: sb, engine: e, has: slices.Clone(layers), online: online}, err
}

// intermediate publishes an image without a name that has these layers.
func (b *builder) intermediate(ctx context.Context, layers []oci.Layer) (oci.Digest, error) {
	config, err := configOf(nil, layers, nil, b.plan.Platform())
	if err != nil {
		return "", err
	}
	d, err := archive.Publish(ctx, b.images.Store, imageref.Ref{}, config, layers)
	if err != nil {
		return "", fmt.Errorf("publish intermediate image: %w", err)
	}
	b.mu.Lock()
	b.dropped = append(b.dropped, d)
	b.mu.Unlock()
	return d, nil
}

// layer takes what changed since the last call as a layer. nil: nothing changed.
func (x *box) layer(ctx context.Context) (*oci.Layer, error) {
	snap, err := x.engine.EphemeralSnapshot(ctx, x.ID)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(x.images.Store.Dir(), os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make file for a layer: %w", err)
	}
	defer f.Close()
	did, err := x.engine.Layer(ctx, snap.ID, x.taken, f)
	if err != nil {
		return nil, err
	}
	if did.Layers > x.taken {
		x.taken++
	}
	if did.Entries == 0 {
		return nil, nil
	}
	l, err := archive.AddLayer(ctx, x.images.Store, fsutil.FDPath(int(f.Fd())))
	return &l, err
}

func (x *box) close() { x.sessions.Remove(context.Background(), x.ID) }
