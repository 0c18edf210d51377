package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"demesne/cli/devcontainer"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
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

// Config returns the configuration of a root that is not an image, or nil: the configuration of an image is not known yet.
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

// OpenDevcontainer builds the image of --build. Or it reads the file that --devcontainer names, builds its image, and sets the
// options that it decides.
func (o *Options) OpenDevcontainer(args []string) (err error) {
	switch {
	case o.build != "" && (o.Asked != nil || o.Image.Kind != ""):
		return errors.New("--build: cannot be combined with --image and --devcontainer")
	case o.build != "":
		o.Image, err = devcontainer.Build(o.build, devcontainer.Options{App: o.App, Pull: o.Pull, Platform: o.platform})
		o.Pull = images.PullNever
		return err
	case o.Asked == nil:
		return nil
	case o.Image.Kind != "":
		return errors.New("--devcontainer and --image: cannot be combined")
	case *o.Asked == "" && len(args) > 0 && isDirectory(args[0]):
		return text.Hinted(fmt.Errorf("command %q: is a directory", args[0]), "--devcontainer=%s -- CMD", args[0])
	}
	d, image, err := devcontainer.Open(*o.Asked, devcontainer.Options{
		App: o.App, Pull: o.Pull, Platform: o.platform, Agent: o.Verb == "agent", Mounted: o.Mounts.Targets,
		Env: func() ([]string, error) { return o.Environment(o.Env) },
		Published: func(port uint16) bool {
			return slices.ContainsFunc(o.Network.Publish, func(p runner.Port) bool { return p.To == port })
		},
	})
	if err != nil {
		return err
	}
	if o.Image = image; d.Built() {
		o.Pull = images.PullNever
	}
	if len(args) > 0 && o.Entrypoint == nil && o.Shell == nil {
		o.Entrypoint = &[]string{} // a command of a dev container does not go through the image's entrypoint
	}
	if o.Verb != "agent" { // it has its project at its own place, with the parts that it may not write
		o.Mounts.Add(d.Mounts, d.Dir(), d.Tmpfs())
	}
	o.dev = d
	return nil
}

// Wrapped returns the command to run, after the services and then the hooks of a devcontainer.json.
func (r *Root) Wrapped(c *oci.Config, args []string) ([]string, error) {
	argv, err := r.Argv(c, args)
	if err == nil {
		argv = r.o.dev.Wrap(argv, r.o.Key != "")
		if r.o.Services != nil {
			argv = r.o.Services.Before(argv, r.o.Key != "")
		}
	}
	return argv, err
}

// Hooks starts the services of a persistent sandbox, and executes the hooks of a devcontainer.json. It removes a new sandbox
// if one fails.
func (r *Root) Hooks(ctx context.Context, s *session.Service, b *session.Sandbox) (code int, err error) {
	if r.o.Services != nil {
		cmd := runner.Command{Argv: r.o.Services.Before(nil, true)}
		done, err := s.Exec(ctx, b.ID, session.RunOptions{Command: cmd, Stdout: r.o.Stderr, Stderr: r.o.Stderr}, session.Callbacks{})
		if done != nil {
			code = done.ExitCode
		}
		if (err != nil || code != 0) && !b.Existing {
			err = errors.Join(err, s.Discard(b.ID))
		}
		if err != nil || code != 0 {
			return code, err
		}
	}
	return r.o.dev.Hooks(ctx, s, b)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
