package image

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session"
)

func pullCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "pull", Usage: []string{"[--platform OS/ARCH] [--json | -q] NAME…", "[--platform OS/ARCH] [--json | -q] --list FILE"}, Summary: "pull images",
			About: `Asks the registry for each image, downloads the missing layers, and unpacks them, so that a run does not have to. It
prints each image as its name and digest.

NAME is a word of the catalogue (demesne images --all), a reference such as debian:12 or
registry.example/o/n@sha256:…, or oci:DIR[:TAG], oci-archive:FILE or docker-archive:FILE. Mirrors, credentials and
certificates come from the files of podman, skopeo and docker.

With --list it pulls all images that FILE names, one a line, four at a time. It skips images that are here, so that
the same command continues a list that was cut short. A registry that limits requests gets none for as long as it asks. The
last lines of stderr name the missing images, and the exit code is 1 if there are any.`,
			Examples: []cmdline.Example{
				{Says: "pull an image of the catalogue", Line: "demesne pull python"},
				{Says: "pull one exact image in a script", Line: "demesne pull -q registry.example/o/n@sha256:4bcf…"},
				{Says: "pull a list of images", Line: "demesne pull --list images.txt"},
				{Says: "pull from a directory in OCI layout", Line: "demesne pull oci:layout:v1"},
			},
			Operand: cmdline.Image,
		},
		New: func(a *app.App) app.Options { return &pullOptions{App: a} },
	}
}

// named parses the operands of a command that takes image names.
func named(args []string) ([]imageref.Ref, error) {
	if len(args) == 0 {
		return nil, text.Hinted(errors.New("needs the name of an image"), "demesne images --all lists names")
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

type pullOptions struct {
	*app.App
	platform    string
	list        string
	json, quiet bool
}

func (o *pullOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "platform", Arg: "OS/ARCH", Set: cmdline.Text(&o.platform),
		Help: "platform of an image with several, such as linux/arm64 (default this machine's)"}},
		listFlag(&o.list, "pull the images that a file names, one a line, or - for stdin; empty lines and # comments are ignored"), app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the digests, and no progress"))
}

// Run pulls images one at a time (layers are pulled in parallel), and reports every failure.
func (o *pullOptions) Run(args []string) (int, error) {
	if o.list != "" && len(args) > 0 {
		return 0, fmt.Errorf("--list: unexpected argument %q", args[0])
	}
	if o.list != "" {
		return o.pullSet()
	}
	refs, err := named(args)
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (code int, _ error) {
		c.Platform = o.platform
		infos := []imageInfo{}
		for _, ref := range refs {
			img, err := o.pull(ctx, c, ref)
			if ctx.Err() != nil {
				return app.ExitFailed, err
			}
			if err != nil {
				code = o.Report("pull", err)
				continue
			}
			infos = append(infos, infoOf(images.Listed{Image: img}))
			if _, err = tell(&o.Console, o.json, o.quiet, ref, img); err != nil {
				return 0, err
			}
		}
		if o.json {
			if _, err := o.PrintJSON(infos); err != nil {
				return 0, err
			}
		}
		return code, nil
	})
}

func (o *pullOptions) pull(ctx context.Context, c *images.Client, ref imageref.Ref) (*images.Image, error) {
	p := progress.New(&o.Console, o.quiet, fmt.Sprintf("pull %q", ref.Given))
	defer p.Done()
	img, err := c.Pull(ctx, ref, p.Take)
	if err != nil {
		return nil, session.NamedImage(ref, err)
	}
	return img, nil
}

// tell prints the name and digest of a new image, or with -q only the digest. With --json it prints
// nothing.
func tell(c *app.Console, json, quiet bool, ref imageref.Ref, img *images.Image) (int, error) {
	switch {
	case json:
		return 0, nil
	case quiet:
		return c.Print(img.Digest.String() + "\n")
	}
	return c.Print(imageref.Short(ref.Full) + " " + img.Digest.String() + "\n")
}
