package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/cmd/internal/session/base"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
)

// root is the root file system of a sandbox, before and after it was found.
type root struct {
	app    *app
	o      *options
	ref    imageref.Ref
	ground *base.Base // nil: not found yet
}

// newRoot returns the root that o names, without looking for it.
func (a *app) newRoot(o *options) (*root, error) {
	r := &root{app: a, o: o, ref: o.image}
	if r.ref.Kind == "" {
		name := imageref.Default(func(k string) string { v, _ := a.env(k); return v })
		var err error
		if r.ref, err = base.Parse(name); err != nil {
			return nil, hinted(fmt.Errorf("image %q: %w", name, err), "from $DEMESNE_DEFAULT_IMAGE")
		}
	}
	if r.ref.Kind == imageref.Host && o.userName != "" {
		return nil, fmt.Errorf("user %q: %w", o.userName, errUser)
	}
	return r, nil
}

// find locates the root and pulls a missing image.
func (r *root) find(ctx context.Context, st *stages) (err error) {
	began := time.Now()
	p := r.progress()
	defer p.done()
	r.ground, err = base.Find(ctx, r.ref, base.Options{Images: r.app.images, Pull: r.o.pull, Progress: p.take})
	if r.ref.Stored() {
		st.since("image", began)
	}
	return err
}

// config returns the image's configuration, or nil if the image has not been found yet.
func (r *root) config() *oci.Config {
	switch {
	case r.ground != nil && r.ground.Image != nil:
		return &r.ground.Image.Config
	case r.ref.Stored():
		return nil
	}
	return &oci.Config{}
}

// argv returns the command to run: shell text, or the image's entrypoint with args. It returns nil if the image
// has not been found yet.
func (r *root) argv(args []string) ([]string, error) {
	c := r.config()
	switch {
	case r.o.shell != nil && r.o.entrypoint != nil:
		return nil, errors.New("-c and --entrypoint: cannot be combined")
	case r.o.shell != nil:
		return append([]string{"/bin/sh", "-c", *r.o.shell}, args...), nil
	case c == nil:
		return nil, nil
	case !r.ref.Stored() && r.o.entrypoint == nil:
		return r.o.argv(args)
	}
	argv, err := c.Command(r.o.entrypoint, args)
	if errors.Is(err, oci.ErrNoCommand) {
		return nil, hinted(fmt.Errorf("image %q: %w", r.ref.Given, err), "demesne run --image %s -- CMD", r.ref.Given)
	}
	return argv, err
}

// release unlocks the image; a sandbox made from it holds its own lock.
func (r *root) release() { r.ground.Release() }

// create makes the sandbox. If the runner lacks an unpacked copy of the image, it is unpacked first.
func (r *root) create(ctx context.Context, eng engine, spec runner.Spec) (*box, error) {
	p := r.progress()
	defer p.done()
	r.ground.Fill(&spec, r.o.userName)
	return base.Create(ctx, r.ground, spec, eng.Create)
}

// run makes a sandbox and starts cmd in it.
func (r *root) run(ctx context.Context, eng engine, spec runner.Spec, cmd runner.Command) (*begun, error) {
	p := r.progress()
	defer p.done()
	r.ground.Fill(&spec, r.o.userName)
	return base.Create(ctx, r.ground, spec, func(ctx context.Context, spec runner.Spec) (*begun, error) {
		return eng.Run(ctx, spec, cmd)
	})
}

func (r *root) progress() *progress {
	return r.app.newProgress(r.o, fmt.Sprintf("%s: image %q", r.o.verb, r.ref.Given))
}
