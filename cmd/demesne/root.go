package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/images"
	"demesne/runner"
	"demesne/runner/wire"
)

// root is what a sandbox stands on: the host's own tree or a directory, which cost
// nothing and open no store, or an image.
type root struct {
	app    *app
	o      *options
	ref    images.Reference
	client *images.Client // of an image, like what follows
	image  *images.Image
	hold   io.Closer
}

// newRoot is the root that o names, as far as its name says.
func (a *app) newRoot(o *options) (*root, error) {
	r := &root{app: a, o: o, ref: o.image}
	if r.ref.Kind == "" {
		name := images.Default(func(k string) string { v, _ := a.env(k); return v })
		var err error
		if r.ref, err = parseImage(name); err != nil {
			return nil, hinted(fmt.Errorf("image %q: %w", name, err), "$DEMESNE_DEFAULT_IMAGE named it")
		}
	}
	if r.ref.Kind == images.Host && o.userName != "" {
		return nil, fmt.Errorf("user %q: %w", o.userName, errUser)
	}
	return r, nil
}

// find finds the image, and fetches what of it is to be fetched.
func (r *root) find(ctx context.Context, st *stages) (err error) {
	switch r.ref.Kind {
	case images.Host:
		return nil
	case images.Directory:
		return r.checkDirectory()
	}
	began := time.Now()
	if r.client, err = r.app.images(); err != nil {
		return err
	}
	p := r.progress()
	defer p.done()
	for tries := 0; ; tries++ {
		err = r.take(ctx, p)
		// Whoever collects garbage may come between the image's arrival and its hold.
		if !errors.Is(err, images.ErrNotFound) || !r.fetchable() || tries == holdTries {
			break
		}
	}
	st.since("image", began)
	return nameImage(r.ref, err)
}

// holdTries is how often an image that vanished before it was held is fetched again.
const holdTries = 5

// fetchable says whether an image that is not in the store can be brought there.
func (r *root) fetchable() bool {
	return r.o.pull != images.PullNever && r.ref.Kind != images.Bare && r.ref.Kind != images.Pinned
}

// take fetches the image if need be, and holds it.
func (r *root) take(ctx context.Context, p *progress) (err error) {
	if r.image, err = r.client.Ensure(ctx, r.ref, r.o.pull, p.take); err != nil {
		return err
	}
	r.hold, err = r.client.Store.Hold(ctx, r.image.Digest)
	return err
}

// checkDirectory follows links once, so that what is shown and what is used are one.
func (r *root) checkDirectory() error {
	real, err := filepath.EvalSymlinks(r.ref.Path)
	if err != nil {
		return fmt.Errorf("image %q: %w", r.ref.Given, reason(err))
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return fmt.Errorf("image %q: is not a directory", r.ref.Given)
	}
	r.ref.Path = real
	return nil
}

// argv is the command to run: shell text, or what the image makes of args. It is nil as
// long as an image has to be found to tell.
func (r *root) argv(args []string) ([]string, error) {
	switch {
	case r.o.shell != nil && r.o.entrypoint != nil:
		return nil, errors.New("-c and --entrypoint: both name what to run")
	case r.o.shell != nil:
		return append([]string{"/bin/sh", "-c", *r.o.shell}, args...), nil
	case r.image == nil && r.ref.Stored():
		return nil, nil
	case r.image == nil && r.o.entrypoint == nil:
		return r.o.argv(args)
	}
	var c images.Config
	if r.image != nil {
		c = r.image.Config
	}
	argv, err := c.Command(r.o.entrypoint, args)
	if errors.Is(err, images.ErrNoCommand) {
		return nil, hinted(fmt.Errorf("image %q: %w", r.ref.Given, err), "demesne run --image %s -- CMD", r.ref.Given)
	}
	return argv, err
}

// fill says in spec what the sandbox stands on.
func (r *root) fill(spec *runner.Spec) {
	spec.Image = r.ref.Given
	switch {
	case r.ref.Kind == images.Directory:
		spec.Rootfs = &runner.Rootfs{Dir: r.ref.Path, User: r.o.userName}
	case r.image != nil:
		c := r.image.Config
		spec.Rootfs = &runner.Rootfs{
			Digest: r.image.Digest.String(), Store: r.client.Store.Dir(),
			User: orElse(r.o.userName, c.User), Env: slices.DeleteFunc(slices.Clone(c.Env), isNoVariable),
		}
		if c.WorkingDir != "" {
			spec.Rootfs.WorkingDir = path.Join("/", c.WorkingDir)
		}
		for _, l := range r.image.Layers {
			spec.Rootfs.Layers = append(spec.Rootfs.Layers, l.DiffID.String())
		}
	}
}

// isNoVariable picks out what an image may have in its environment and no process can.
func isNoVariable(s string) bool {
	return strings.Index(s, "=") <= 0 || strings.ContainsRune(s, 0)
}

// release lets go of the image; a sandbox on it holds it by then.
func (r *root) release() {
	if r.hold != nil {
		r.hold.Close()
	}
}

// create makes the sandbox. What the runner's ids lack of the image is unpacked first.
func (r *root) create(ctx context.Context, eng engine, spec runner.Spec) (*box, error) {
	b, err := eng.Create(ctx, spec)
	var e *wire.Error
	if r.image == nil || !errors.As(err, &e) || e.Code != wire.CodeMissing {
		return b, err
	}
	p := r.progress()
	defer p.done()
	if err := r.client.Unpack(ctx, r.image, p.take); err != nil {
		return nil, nameImage(r.ref, err)
	}
	return eng.Create(ctx, spec)
}

func (r *root) progress() *progress {
	return r.app.newProgress(r.o, fmt.Sprintf("%s: image %q", r.o.verb, r.ref.Given))
}

// parseImage is images.Parse without what its error says of the name, which whoever took
// the name says as well.
func parseImage(name string) (images.Reference, error) {
	ref, err := images.Parse(name)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return ref, err
}
