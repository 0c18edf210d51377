package cli

import (
	"errors"
	"fmt"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// root is the root file system of a sandbox that was not looked for yet.
type root struct {
	o   *options
	ref imageref.Ref
}

// newRoot returns the root that o names, without looking for it.
func (o *options) newRoot() (*root, error) {
	r := &root{o: o, ref: o.image}
	if r.ref.Kind == "" {
		var err error
		if r.ref, err = o.Session(o.network.source(&o.Console), nil).DefaultImage(); err != nil {
			return nil, err
		}
	}
	if r.ref.Kind == imageref.Host && o.userName != "" {
		return nil, fmt.Errorf("user %q: %w", o.userName, errUser)
	}
	return r, nil
}

// config returns the configuration of a root that is no image, or nil: that of an image is not known yet.
func (r *root) config() *oci.Config {
	if r.ref.Stored() {
		return nil
	}
	return &oci.Config{}
}

// argv returns the command to run: shell text, or the image's entrypoint with args. c is the image's
// configuration. argv returns nil if c is nil, not known yet.
func (r *root) argv(c *oci.Config, args []string) ([]string, error) {
	switch {
	case r.o.shell != nil && r.o.entrypoint != nil:
		return nil, errors.New("-c and --entrypoint: cannot be combined")
	case r.o.shell != nil:
		return append([]string{"/bin/sh", "-c", *r.o.shell}, args...), nil
	case c == nil:
		return nil, nil
	case !r.ref.Stored() && r.o.entrypoint == nil:
		return r.o.argv(r.o.Verb, args)
	}
	argv, err := c.Command(r.o.entrypoint, args)
	if errors.Is(err, oci.ErrNoCommand) {
		return nil, app.Hinted(fmt.Errorf("image %q: %w", r.ref.Given, err), "demesne run --image %s -- CMD", r.ref.Given)
	}
	return argv, err
}

func (r *root) progress() *progress.Progress {
	return progress.New(&r.o.Console, r.o.quiet, fmt.Sprintf("%s: image %q", r.o.Verb, r.ref.Given))
}
