package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/cli/stream"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session"
)

func importCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "import", Usage: []string{"TAR|DIR NAME"}, Summary: "make an image from a directory or an archive",
			About: `Makes an image of one layer from a root filesystem: a directory, or a tar of one, also compressed with gzip or zstd. A tar
that podman save, docker save or demesne save wrote becomes the same image again.

NAME is the name of the new image, such as local/base or local/base:2. The default tag is latest.`,
			Examples: []cmdline.Example{
				{Says: "import the result of debootstrap, mmdebstrap or buildroot", Line: "demesne import rootfs.tar local/base"},
				{Says: "import an image from podman", Line: "podman save app | gzip > app.tgz; demesne import app.tgz local/app"},
			},
			Operand: cmdline.File,
		},
		New: func(a *app.App) app.Options { return &importOptions{App: a} },
	}
}

type importOptions struct {
	*app.App
	json, quiet bool
}

func (o *importOptions) Flags() cmdline.Flags { return madeFlags(&o.json, &o.quiet) }

func (o *importOptions) Run(args []string) (int, error) {
	if len(args) != 2 {
		return 0, text.Hinted(errors.New("needs a tar file or directory, and a name"), "demesne import rootfs.tar base")
	}
	src, err := os.Stat(args[0])
	if err != nil {
		return 0, fmt.Errorf("source %q: %w", args[0], fsutil.Reason(err))
	}
	if !src.IsDir() && !src.Mode().IsRegular() {
		return 0, fmt.Errorf("source %q: is not a regular file or directory", args[0])
	}
	ref, err := oneImage(args[1:])
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		p := progress.New(&o.Console, o.quiet, fmt.Sprintf("import %q", ref.Given))
		defer p.Done()
		img, err := c.Import(ctx, args[0], ref, p.Take)
		if err == nil {
			err = c.Unpack(ctx, img, p.Take) // as pull does
		}
		if err != nil {
			return 0, err
		}
		p.Done()
		if o.json {
			return o.PrintJSON(infoOf(images.Listed{Image: img}))
		}
		return tell(&o.Console, o.json, o.quiet, ref, img)
	})
}

// madeFlags are the flags of verbs that make an image.
func madeFlags(json, quiet *bool) cmdline.Flags {
	return slices.Concat(app.JSONFlag(json), app.QuietFlag(quiet, "print only the digest"))
}

func exportCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "export", Usage: []string{"[-o FILE] NAME"}, Summary: "write the root filesystem of an image as a tar",
			About: `Writes the root filesystem of an image as one tar, with its layers merged, to stdout or to FILE. The image's configuration
is not included; demesne save keeps it.`,
			Examples: []cmdline.Example{
				{Says: "write a file", Line: "demesne export -o base.tar local/base"},
				{Says: "print one file of an image", Line: "demesne export debian | tar -xO etc/os-release"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &exportOptions{archiveOptions{App: a}} },
	}
}

type exportOptions struct{ archiveOptions }

func (o *exportOptions) Flags() cmdline.Flags {
	return o.fileFlag("file to write (default stdout)")
}

func (o *exportOptions) Run(args []string) (int, error) {
	return o.write(args, func(ctx context.Context, c *images.Client, ref imageref.Ref, to *os.File, p *progress.Progress) error {
		return c.Export(ctx, ref, to, p.Take)
	})
}

func saveCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "save", Usage: []string{"[--format oci|docker] -o FILE NAME"}, Summary: "write an image as an archive",
			About: `Writes an image, with its layers and configuration, into one file. demesne import, podman load and skopeo read it. With
--format docker, docker load reads it too.`,
			Examples: []cmdline.Example{
				{Says: "write an archive for another machine", Line: "demesne save -o app.tar local/app"},
				{Says: "write an archive for docker load", Line: "demesne save --format docker -o app.tar local/app"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &saveOptions{archiveOptions: archiveOptions{App: a}} },
	}
}

type saveOptions struct {
	archiveOptions
	format string
}

var formats = []string{"oci", "docker"}

func (o *saveOptions) Flags() cmdline.Flags {
	return slices.Concat(o.fileFlag("file to write; - is stdout"),
		cmdline.Flags{{Group: app.GroupResult, Long: "format", Arg: "FORMAT", Words: formats, Set: cmdline.Word(&o.format, formats),
			Help: "oci or docker (default oci)"}})
}

func (o *saveOptions) Run(args []string) (int, error) {
	if o.file == "" {
		return 0, text.Hinted(errors.New("needs a file to write"), "demesne save -o image.tar NAME; -o - is stdout")
	}
	return o.write(args, func(ctx context.Context, c *images.Client, ref imageref.Ref, to *os.File, p *progress.Progress) error {
		return c.Save(ctx, ref, to, cmp.Or(o.format, formats[0]), p.Take)
	})
}

// archiveOptions are the options that export and save share.
type archiveOptions struct {
	*app.App
	file string // -o
}

func (o *archiveOptions) fileFlag(help string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "output", Short: 'o', Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.file), Help: help}}
}

// write calls do with the file of -o, which appears when it is complete, or with stdout.
func (o *archiveOptions) write(args []string, do func(context.Context, *images.Client, imageref.Ref, *os.File, *progress.Progress) error) (int, error) {
	ref, err := oneImage(args)
	if err != nil {
		return 0, err
	}
	toStdout := o.file == "" || o.file == "-"
	if toStdout && stream.IsTerminal(o.Stdout) {
		return 0, text.Hinted(errors.New("will not write a tar to a terminal"), "demesne %s -o FILE %s", o.Verb, ref.Given)
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		p := progress.New(&o.Console, false, fmt.Sprintf("%s %q", o.Verb, ref.Given))
		defer p.Done()
		fill := func(to *os.File) error { return session.NamedImage(ref, do(ctx, c, ref, to, p)) }
		if toStdout {
			return 0, fill(o.Stdout)
		}
		return 0, intoFile(o.file, fill)
	})
}

// intoFile replaces a regular file atomically once it is complete. It writes directly to an existing file of
// another kind, such as a pipe, a device or a link.
func intoFile(path string, fill func(*os.File) error) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().IsRegular() {
		return images.ToFile(path, fill)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("write %q: %w", path, fsutil.Reason(err))
	}
	return errors.Join(fill(f), f.Close())
}

// oneImage parses the operand of a command that takes exactly one image name.
func oneImage(args []string) (imageref.Ref, error) {
	if len(args) > 1 {
		return imageref.Ref{}, fmt.Errorf("unexpected argument %q", args[1])
	}
	refs, err := named(args)
	if err != nil {
		return imageref.Ref{}, err
	}
	return refs[0], nil
}
