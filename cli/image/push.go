package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session"
)

// access are the options of verbs that talk to a registry.
type access struct{ tlsVerify, authFile string }

var (
	compressions = []string{"gzip", "zstd", "none"}
	booleans     = []string{"true", "false"}
)

func pushCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "push", Usage: []string{"[flags] NAME [DEST]"}, Summary: "copy an image to a registry",
			About: `Copies an image to a registry, and prints the name and the digest that it has there. DEST is the new name, with its
registry: registry.example/team/app:1. It can be left out if NAME has a registry.

Layers that the registry has are not sent. The layers of an image that demesne build, commit or import made are
compressed, always to the same bytes, so the digest is stable. demesne build begins with that in the background. An image
that was pulled keeps its digest.

demesne login, podman login or docker login store the password that the registry wants.`,
			Examples: []cmdline.Example{
				{Says: "push an image under a new name", Line: "demesne push local/app registry.example/team/app:1"},
				{Says: "get the digest, for a deployment", Line: "demesne push -q local/app registry.example/team/app:1"},
				{Says: "push to a test registry without TLS", Line: "demesne push --tls-verify=false local/app localhost:5000/app"},
				{Says: "push with smaller layers", Line: "demesne push --compression zstd --compression-level 19 local/app registry.example/app"},
			},
			Operand: cmdline.Image, Here: true,
			Habits: pushHabits,
		},
		New: func(a *app.App) app.Options { return &pushOptions{App: a} },
	}
}

// accessFlags are the flags of commands that talk to a registry.
func (p *access) accessFlags() cmdline.Flags {
	return append(cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "tls-verify", Arg: "BOOL", Words: booleans, Set: cmdline.Word(&p.tlsVerify, booleans),
			Help: "false allows plain HTTP and untrusted certificates (default true, or as registries.conf says)"},
	}, p.authFileFlag()...)
}

func (p *access) authFileFlag() cmdline.Flags {
	return cmdline.Flags{{Group: cmdline.GroupGeneral, Long: "authfile", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&p.authFile),
		Help: "file with credentials (default $REGISTRY_AUTH_FILE, or podman's)"}}
}

func tagCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "tag", Usage: []string{"NAME NEW…"}, Summary: "give an image another name",
			About: "Gives an image one more name, or several. If a new name has another image, it moves to this one. demesne rmi removes a name.",
			Examples: []cmdline.Example{
				{Says: "name an image for a registry, and push it", Line: "demesne tag local/app registry.example/team/app:1; demesne push registry.example/team/app:1"},
				{Says: "keep the image of today", Line: "demesne tag local/app local/app:old"},
			},
			Operand: cmdline.Image, Here: true,
		},
		New: func(a *app.App) app.Options { return &tagOptions{App: a} },
	}
}

type tagOptions struct {
	*app.App
}

func (o *tagOptions) Run(args []string) (int, error) {
	if len(args) < 2 {
		return 0, text.Hinted(errors.New("needs the name of an image, and a new name"), "demesne tag local/app local/app:2")
	}
	refs, err := named(args)
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		for _, to := range refs[1:] {
			if _, err := c.Tag(ctx, refs[0], to); err != nil {
				return 0, session.NamedImage(refs[0], err)
			}
		}
		return 0, nil
	})
}

// pushed is a pushed image as --json prints it.
type pushed struct {
	Name   string        `json:"name"`
	Digest oci.Digest    `json:"digest"` // in the registry
	Image  oci.Digest    `json:"image"`  // digest in the store
	Layers []pushedLayer `json:"layers"`
}

type pushedLayer struct {
	oci.Layer
	State events.State `json:"state"` // pushed, mounted or present
}

type pushOptions struct {
	*app.App
	access
	compression        string
	compressionLevel   int
	signBy, passphrase string // files
	json, quiet        bool
}

func (o *pushOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: app.GroupResult, Long: "compression", Arg: "FORMAT", Words: compressions, Set: cmdline.Word(&o.compression, compressions),
			Help: "format of all layers: gzip, zstd or none (default layers keep theirs, and uncompressed ones become gzip)"},
		{Group: app.GroupResult, Long: "compression-level", Arg: "N", Set: func(s string) (err error) {
			if o.compressionLevel, err = strconv.Atoi(s); err != nil || o.compressionLevel < 1 || o.compressionLevel > 22 {
				return errors.New("not a number from 1 to 22")
			}
			return nil
		}, Help: "level of layers that are compressed: 1 to 9 for gzip, 1 to 22 for zstd (default 5 for gzip, 3 for zstd)"},
		{Group: app.GroupResult, Long: "sign-by", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.signBy),
			Help: "also sign the image with this sigstore private key"},
		{Group: app.GroupResult, Long: "sign-passphrase-file", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.passphrase),
			Help: "file with the key's passphrase (default: ask on the terminal)"},
	}, o.accessFlags(), app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the digest, and no progress"))
}

func (o *pushOptions) Run(args []string) (int, error) {
	from, to, err := pushNames(args)
	if err != nil {
		return 0, err
	}
	how := images.Push{Compression: o.compression, Level: o.compressionLevel, SignBy: o.signBy}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		c.TLSVerify, c.AuthFile = o.tlsVerify, o.authFile
		img, err := c.Store.Lookup(from)
		if err != nil {
			return 0, session.NamedImage(from, err)
		}
		if how.Passphrase, err = o.keyPassphrase(ctx); err != nil {
			return 0, err
		}
		p := progress.NewPush(&o.Console, o.quiet, fmt.Sprintf("push %q", to.Given))
		defer p.Done()
		result := pushed{Name: to.Full, Image: img.Digest, Layers: []pushedLayer{}}
		result.Digest, err = c.Push(ctx, from, to, how, func(e events.Event) {
			if e.Event == events.Layer && e.Layer != nil {
				result.Layers = append(result.Layers, pushedLayer{*e.Layer, e.State})
			}
			p.Take(e)
		})
		if err != nil {
			return 0, err
		}
		p.Done()
		switch {
		case o.json:
			return o.PrintJSON(result)
		case o.quiet:
			return o.Print(string(result.Digest) + "\n")
		}
		return o.Print(imageref.Short(to.Full) + " " + string(result.Digest) + "\n")
	})
}

// pushNames returns the image to push, and its name in a registry. A name without a registry never goes to one: a mistyped
// "local/app" would be a name of Docker Hub.
func pushNames(args []string) (from, to imageref.Ref, err error) {
	if len(args) > 2 {
		return from, to, fmt.Errorf("unexpected argument %q", args[2])
	}
	refs, err := named(args[:min(1, len(args))])
	if err != nil {
		return from, to, err
	}
	from, to = refs[0], refs[0]
	if len(args) == 2 {
		if to, err = session.ParseImage(args[1]); err != nil {
			return from, to, fmt.Errorf("destination %q: %w", args[1], err)
		}
	}
	switch {
	case to.Local() || to.Kind == imageref.Directory:
		return from, to, text.Hinted(fmt.Errorf("destination %q: is not in a registry", to.Given), "demesne save -o FILE %s writes an archive", from.Given)
	case to.Digest() != "":
		return from, to, text.Hinted(fmt.Errorf("destination %q: a digest cannot be chosen", to.Given), "name a tag in place of it: REGISTRY/NAME:TAG")
	case !to.Explicit():
		return from, to, text.Hinted(fmt.Errorf("destination %q: names no registry", to.Given), "demesne push %s REGISTRY/NAME:TAG", from.Given)
	}
	return from, to, nil
}

// keyPassphrase reads the passphrase of the key that signs.
func (o *pushOptions) keyPassphrase(ctx context.Context) (string, error) {
	switch {
	case o.signBy == "" && o.passphrase != "":
		return "", text.Hinted(errors.New("a passphrase without a key"), "--sign-by FILE names the key")
	case o.signBy == "":
		return "", nil
	case o.passphrase != "":
		return secretFile(o.passphrase)
	}
	return o.AskSecret(ctx, fmt.Sprintf("Passphrase of %q: ", o.signBy), "--sign-passphrase-file FILE reads it from a file")
}

// pushHabits are flags of podman push and skopeo copy.
func pushHabits() map[string]string {
	const login = "demesne login stores a password; --authfile FILE names another file with one"
	return map[string]string{
		"--creds": login, "--dest-creds": login, "--insecure": "use --tls-verify=false", "--dest-tls-verify": "use --tls-verify",
		"--compression-format": "use --compression", "--digestfile": "demesne push -q prints the digest",
		"--sign-by-sigstore-private-key": "use --sign-by FILE", "--sign-by-sigstore": "keyless signatures (Fulcio, Rekor) are not supported: use --sign-by FILE", "--cert-dir": "put the certificate into ~/.config/containers/certs.d/REGISTRY",
	}
}
