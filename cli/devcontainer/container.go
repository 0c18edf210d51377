package devcontainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"demesne/build"
	"demesne/build/devcontainer"
	"demesne/cli/app"
	"demesne/cli/mounts"
	"demesne/cli/stream"
	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// Options are the command line's additions to the file.
type Options struct {
	*app.App
	Pull      images.PullPolicy
	Platform  string
	Env       func() ([]string, error) // variables of the command
	Mounted   func() ([]string, error) // targets of its own mounts
	Published func(port uint16) bool
	Agent     bool // an agent has the project at its own path, a user of its own, and no hooks
}

// Container is a devcontainer.json that was read.
type Container struct {
	Options
	Mounts []mounts.Mount

	dir  string // the workspace, without symbolic links
	root *os.Root
	name string // of the file, in dir
	mode string // of the workspace: rw, ro or cow
	plan *devcontainer.Plan
}

// Dir returns the directory where commands start.
func (d *Container) Dir() string { return d.plan.Dir }

// Tmpfs returns the paths of file systems in memory.
func (d *Container) Tmpfs() []string { return d.plan.Tmpfs }

// Built reports whether the image was built here, so that it is in no registry.
func (d *Container) Built() bool { return d.plan.Build != nil || d.plan.HasFeatures() }

func find(arg string) (d *Container, err error) {
	where, mode := mounts.SplitMode(arg, mounts.Modes...)
	d = &Container{mode: mode}
	abs, err := filepath.Abs(where)
	if err != nil {
		return nil, err
	}
	abs, d.name = devcontainer.Locate(abs)
	if d.dir, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fsutil.Reason(err)
	}
	if d.root, err = os.OpenRoot(d.dir); err != nil {
		return nil, fsutil.Reason(err)
	}
	if d.name == "" {
		if d.name, err = devcontainer.Find(d.root); err != nil {
			d.root.Close()
			return nil, err
		}
	}
	return d, nil
}

// hinted gives an error of package devcontainer its hint.
func hinted(err error) error {
	if refused, ok := errors.AsType[*devcontainer.Refused](err); ok {
		return text.Hinted(err, "%s", refused.Hint)
	}
	return err
}

// run builds an image under a name. The first file of the streams is the context.
func (d *Container) run(name string, b build.Options, s build.Streams) error {
	b.Context, b.Names, b.Platform, b.Quiet = "/proc/self/fd/4", []string{name}, d.Platform, !stream.IsTerminal(d.Stderr)
	s.Log = d.Stderr
	if _, err := build.Run(context.Background(), b, s); err != nil {
		return fmt.Errorf("image %q: not built: %w", name, err)
	}
	return nil
}

// imageHas returns what an image's configuration says.
func imageHas(c oci.Config) devcontainer.Has {
	return devcontainer.Has{Metadata: c.Labels[devcontainer.MetadataLabel], Env: c.Env, User: c.User}
}

// small reads a file of the workspace.
func (d *Container) small(name string) ([]byte, error) {
	text, err := devcontainer.ReadSmall(d.root, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(name), err)
	}
	return text, nil
}

// withImages calls f with the image store, until a signal ends it.
func (d *Container) withImages(f func(context.Context, *images.Client) error) error {
	code, err := d.WithImages(func(ctx context.Context, c *images.Client) (int, error) { return 0, f(ctx, c) })
	if err == nil && code != 0 {
		err = context.Canceled
	}
	return err
}
