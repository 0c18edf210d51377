package launch

import (
	"errors"
	"fmt"

	"demesne/cli/progress"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/text"
)

// Root is the root file system of a sandbox that was not looked for yet.
type Root struct {
	o   *Options
	Ref imageref.Ref
}

// NewRoot returns the root that o names, without looking for it.
func (o *Options) NewRoot() (*Root, error) {
	r := &Root{o: o, Ref: o.Image}
	if r.Ref.Kind == "" {
		var err error
		if r.Ref, err = o.Session(nil).DefaultImage(); err != nil {
			return nil, err
		}
	}
	if r.Ref.Kind == imageref.Host && o.UserName != "" {
		return nil, fmt.Errorf("user %q: %w", o.UserName, ErrUser)
	}
	return r, nil
}

// Config returns the configuration of a root that is not an image, or nil: that of an image is not known yet.
func (r *Root) Config() *oci.Config {
	if r.Ref.Stored() {
		return nil
	}
	return &oci.Config{}
}

// Argv returns the command to run: shell text, or the image's entrypoint with args. c is the image's
// configuration. argv returns nil if c is nil, not known yet.
func (r *Root) Argv(c *oci.Config, args []string) ([]string, error) {
	switch {
	case r.o.Shell != nil && r.o.Entrypoint != nil:
		return nil, errors.New("-c and --entrypoint: cannot be combined")
	case r.o.Shell != nil:
		return append([]string{"/bin/sh", "-c", *r.o.Shell}, args...), nil
	case c == nil:
		return nil, nil
	case !r.Ref.Stored() && r.o.Entrypoint == nil:
		return r.o.Argv(r.o.Verb, args)
	}
	argv, err := c.Command(r.o.Entrypoint, args)
	if errors.Is(err, oci.ErrNoCommand) {
		return nil, text.Hinted(fmt.Errorf("image %q: %w", r.Ref.Given, err), "demesne run --image %s -- CMD", r.Ref.Given)
	}
	return argv, err
}

func (r *Root) Progress() *progress.Progress {
	return progress.New(&r.o.Console, r.o.quiet, fmt.Sprintf("%s: image %q", r.o.Verb, r.Ref.Given))
}
