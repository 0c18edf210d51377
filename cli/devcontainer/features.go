package devcontainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"demesne/build"
	"demesne/build/devcontainer"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/session"
)

// resolve finds the features of the file: in the store, in registries, and beside the file.
func (d *Container) resolve() error {
	if !d.plan.HasFeatures() {
		return nil
	}
	pinned, err := d.pinned()
	if err != nil {
		return err
	}
	return d.withImages(func(ctx context.Context, c *images.Client) error {
		return d.plan.Resolve(func(name string) (devcontainer.Content, error) {
			dir, local, err := devcontainer.LocalFeature(name)
			switch {
			case err != nil:
				return devcontainer.Content{}, err
			case local:
				text, err := d.small(path.Join(path.Dir(d.name), dir, devcontainer.FeatureFile))
				return devcontainer.Content{Text: text, Dir: dir}, err
			}
			ref, err := session.ParseImage(cmp.Or(pinned[name], name))
			if err != nil || ref.Kind != imageref.Registry {
				return devcontainer.Content{}, errors.Join(err, errors.New("not a name in a registry"))
			}
			p := progress.New(&d.Console, false, fmt.Sprintf("feature %q", ref.Given))
			defer p.Done()
			img, err := c.Feature(ctx, ref, d.Pull, p.Take)
			if err != nil {
				return devcontainer.Content{}, err
			}
			return devcontainer.Content{Text: []byte(img.Config.Labels[oci.FeatureLabel]), Image: string(img.Digest), Resolved: devcontainer.Pinned(ref.Full, string(img.Index))}, nil
		})
	})
}

// pinned reads the file that pins the features, if there is one.
func (d *Container) pinned() (map[string]string, error) {
	name := devcontainer.LockFile(d.name)
	text, err := d.small(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var pinned map[string]string
	if err == nil {
		pinned, err = devcontainer.Locked(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(name), err)
	}
	return pinned, nil
}

// install builds the image with the features over the image that base names.
func (d *Container) install(base, name string) error {
	ref, err := session.ParseImage(base)
	if err != nil {
		return fmt.Errorf("image %q: %w", base, err)
	}
	has := devcontainer.Has{}
	err = d.withImages(func(ctx context.Context, c *images.Client) error {
		c.Platform = d.Platform
		policy := d.Pull
		if d.plan.Build != nil {
			policy = images.PullNever
		}
		p := progress.New(&d.Console, false, fmt.Sprintf("pull %q", base))
		defer p.Done()
		img, err := c.Ensure(ctx, ref, policy, p.Take)
		if err == nil {
			has = imageHas(img.Config)
		}
		return err
	})
	if err != nil {
		return session.NamedImage(ref, err)
	}
	text, err := d.plan.Containerfile(base, has)
	if err != nil {
		return err
	}
	beside, err := d.root.Open(path.Dir(d.name))
	if err != nil {
		return fsutil.Reason(err)
	}
	defer beside.Close()
	return d.run(name, build.Options{File: "-"}, build.Streams{Stdin: strings.NewReader(text), Files: []*os.File{beside}})
}
