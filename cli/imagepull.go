package cli

import (
	"context"
	"errors"
	"fmt"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/session"
)

// named parses the operands of a command that takes image names.
func named(args []string) ([]imageref.Ref, error) {
	if len(args) == 0 {
		return nil, app.Hinted(errors.New("needs the name of an image"), "demesne images --all lists names")
	}
	var refs []imageref.Ref
	for _, name := range args {
		ref, err := session.ParseImage(name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("image %q: %w", name, err)
		case !ref.Stored():
			return nil, fmt.Errorf("image %q: is not an image in a registry or archive", name)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// cmdPull pulls images one at a time (layers are pulled in parallel), and reports every failure.
func cmdPull(a *app.App, o *options, args []string) (int, error) {
	refs, err := named(args)
	if err != nil {
		return 0, err
	}
	t := imageTool{a}
	return t.WithImages(func(ctx context.Context, c *images.Client) (code int, _ error) {
		c.Platform = o.platform
		infos := []imageInfo{}
		for _, ref := range refs {
			img, err := t.pull(ctx, c, ref, o.quiet)
			if ctx.Err() != nil {
				return app.ExitFailed, err
			}
			if err != nil {
				code = a.Report("pull", err)
				continue
			}
			infos = append(infos, infoOf(images.Listed{Image: img}))
			if _, err = t.tell(&o.reportOptions, ref, img); err != nil {
				return 0, err
			}
		}
		if o.json {
			if _, err := a.PrintJSON(infos); err != nil {
				return 0, err
			}
		}
		return code, nil
	})
}

func (t imageTool) pull(ctx context.Context, c *images.Client, ref imageref.Ref, quiet bool) (*images.Image, error) {
	p := progress.New(&t.App.Console, quiet, fmt.Sprintf("pull %q", ref.Given))
	defer p.Done()
	img, err := c.Pull(ctx, ref, p.Take)
	if err != nil {
		return nil, session.NamedImage(ref, err)
	}
	return img, nil
}

// tell prints the name and digest of a new image, or with -q the digest alone. With --json it prints
// nothing.
func (t imageTool) tell(o *reportOptions, ref imageref.Ref, img *images.Image) (int, error) {
	switch {
	case o.json:
		return 0, nil
	case o.quiet:
		return t.Print(img.Digest.String() + "\n")
	}
	return t.Print(imageref.Short(ref.Full) + " " + img.Digest.String() + "\n")
}

// cmdRmi removes each image, and reports every failure.
func cmdRmi(a *app.App, o *options, args []string) (int, error) {
	refs, err := named(args)
	if err != nil {
		return 0, err
	}
	t := imageTool{a}
	return t.WithImages(func(ctx context.Context, c *images.Client) (code int, _ error) {
		release, _, err := t.holdKept(ctx, c.Store, nil)
		if err != nil {
			return 0, err
		}
		defer release()
		for _, ref := range refs {
			_, err := c.Store.Remove(ctx, ref, o.force)
			if errors.Is(err, images.ErrInUse) {
				err = app.Hinted(err, "demesne ls lists the sandboxes; demesne rmi --force removes the names anyway")
			}
			if err != nil {
				code = a.Report("rmi", session.NamedImage(ref, err))
			}
		}
		return code, nil
	})
}
