package image

import (
	"context"
	"errors"

	"demesne/cli/app"
	"demesne/images"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session"
)

func rmiCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "rmi", Usage: []string{"[--force] NAME…"}, Summary: "remove images",
			About: `Removes names of images. An image is removed with its last name. A digest, or its first twelve digits, removes all names
of the image. An image that a sandbox uses is kept, unless --force is given. Even then only its names are removed, and
the sandbox keeps its files.`,
			Examples: []cmdline.Example{
				{Says: "remove one image", Line: "demesne rmi python"},
				{Says: "remove by digest", Line: "demesne rmi 4bcf01b2c3d4"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &removeOptions{App: a} },
	}
}

type removeOptions struct {
	*app.App
	force bool
}

func (o *removeOptions) Flags() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "force", Short: 'f', Set: cmdline.On(&o.force),
		Help: "also remove the names of an image that a sandbox uses"}}
}

// Run removes each image, and reports every failure.
func (o *removeOptions) Run(args []string) (int, error) {
	refs, err := named(args)
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (code int, _ error) {
		sess := o.Session(session.Options{})
		defer sess.Close()
		release, _, err := sess.HoldStored(ctx, c.Store, nil)
		if err != nil {
			return 0, err
		}
		defer release()
		for _, ref := range refs {
			_, err := c.Store.Remove(ctx, ref, o.force)
			if errors.Is(err, images.ErrInUse) {
				err = text.Hinted(err, "demesne ls lists the sandboxes; demesne rmi --force removes the names anyway")
			}
			if err != nil {
				code = o.Report("rmi", session.NamedImage(ref, err))
			}
		}
		return code, nil
	})
}
