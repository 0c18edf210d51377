package executor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/build/containerfile"
	"demesne/build/recipe"
	"demesne/images"
	"demesne/images/archive"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// maxTaken bounds the layers that one sandbox makes: the runner mounts each of them below the next step.
const maxTaken = 80

// ready provides a sandbox with the stage's files, with or without a network as the step requires.
func (s *stage) ready(ctx context.Context, step *containerfile.Step) (err error) {
	n := needs{}
	if r := step.Run; r != nil {
		n = needs{user: r.User, online: r.Network != "none" && s.Egress.Mode != runner.NoEgress}
		if len(r.Mounts) > 0 || len(r.Script) > 0 || s.Recipe != nil && r.Argv[0] == recipe.BootstrapPath {
			n.mounts, err = s.mountsOf(ctx, r)
			if err != nil {
				n.mounts.close()
				return err
			}
		}
	}
	if s.sandbox != nil && equalLayers(s.sandbox.has, s.layers) && s.sandbox.taken < maxTaken && s.sandbox.mounts == nil && n.mounts == nil && (step.Run == nil || s.sandbox.needs == n) {
		return nil
	}
	if s.sandbox != nil {
		s.sandbox.close()
	}
	s.sandbox, err = s.open(ctx, s.layers, n)
	return err
}

// open makes a sandbox of layers that the store has.
func (b *Builder) open(ctx context.Context, layers []oci.Layer, n needs) (_ *sandbox, err error) {
	defer func() {
		if err != nil && n.mounts != nil {
			n.mounts.close()
		}
	}()
	c := session.CreateOptions{
		Pull: images.PullNever, User: "0:0",
		Aside: true,
		// Without namespaces nothing kills what a command leaves behind, and its changes are among the image's files.
		Spec: runner.Spec{Limits: b.Limits, TTL: runner.Duration(time.Hour), Require: runner.LevelDegraded},
	}
	if n.user != "" {
		c.User = n.user
	}
	if n.online {
		c.Egress = b.Egress
	}
	if n.mounts != nil {
		c.Spec.Mounts, c.Spec.Inputs, c.Spec.Tmpfs = n.mounts.list, n.mounts.inputs, n.mounts.tmpfs
	}
	sb, err := b.create(ctx, c, layers)
	if err != nil {
		return nil, err
	}
	e, err := b.sessions.Engine(ctx)
	x := &sandbox{Builder: b, Sandbox: sb, engine: e, has: slices.Clone(layers), needs: n}
	if n.mounts != nil {
		for _, o := range n.mounts.owned {
			err = errors.Join(err, x.Own(ctx, o))
		}
	}
	return x, err
}

// create makes a sandbox over layers. Another build with these layers, or gc, may remove the image before the sandbox holds
// it: then create tries again.
func (b *Builder) create(ctx context.Context, c session.CreateOptions, layers []oci.Layer) (sb *session.Sandbox, err error) {
	for range 5 {
		d, err1 := b.intermediate(ctx, layers)
		if err1 != nil {
			return nil, err1
		}
		c.Image = imageref.Ref{Kind: imageref.Pinned, Given: string(d), Full: string(d)}
		sb, err = b.sessions.Create(ctx, c, session.Callbacks{Note: b.show.note})
		if !errors.Is(err, images.ErrNotFound) {
			break
		}
	}
	return sb, err
}

// intermediate publishes an image without a name that has these layers.
func (b *Builder) intermediate(ctx context.Context, layers []oci.Layer) (oci.Digest, error) {
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

// layer takes what changed since the last call as a layer. nil: nothing changed. The runner writes the layer to a pipe
// while it is stored.
func (x *sandbox) layer(ctx context.Context) (*oci.Layer, error) {
	snap, err := x.engine.EphemeralSnapshot(ctx, x.ID)
	if err != nil {
		return nil, err
	}
	r, w, err := widePipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var did runner.Layered
	written := make(chan error, 1)
	go func() {
		defer w.Close()
		var err error
		did, err = x.engine.Layer(ctx, snap.ID, x.taken, x.layerOptions(), w)
		written <- err
	}()
	end := sync.OnceValue(func() error { return <-written })
	in := bufio.NewReaderSize(r, pipeSize)
	var added oci.Layer
	head, err := in.Peek(blockSize)
	empty := errors.Is(err, io.EOF) || err == nil && head[0] == 0
	if empty {
		_, err = io.Copy(io.Discard, in)
	} else {
		added, err = archive.AddLayer(ctx, x.images.Store, x.bounded(in), end)
	}
	if err != nil {
		return nil, fmt.Errorf("store layer: %w", err)
	}
	if err := end(); err != nil {
		return nil, err
	}
	if did.Layers > x.taken {
		x.taken++
	}
	if empty {
		return nil, nil
	}
	return &added, nil
}

// bounded returns r, whose reading fails when the new layers of the build have more bytes than they may.
func (b *Builder) bounded(r io.Reader) io.Reader {
	if b.MaxLayers == 0 {
		return r
	}
	return countedLayers{r, b}
}

type countedLayers struct {
	io.Reader
	b *Builder
}

func (c countedLayers) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.b.added.Add(int64(n)) > c.b.MaxLayers {
		return 0, fmt.Errorf("the new layers have more than %d bytes", c.b.MaxLayers)
	}
	return n, err
}

// pipeSize is the size of a pipe for a layer or for copied files, in bytes.
const pipeSize = 1 << 20

// widePipe makes a pipe that holds many small files.
func widePipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	c, err := w.SyscallConn()
	if err == nil { // best effort: a user's pipes may be limited
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
	return r, w, nil
}

func (x *sandbox) close() {
	x.sessions.Remove(context.Background(), x.ID)
	if x.mounts != nil {
		x.mounts.close()
	}
}
