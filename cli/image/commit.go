package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Commit returns demesne commit.
func Commit() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "commit", Usage: []string{"[flags] ID NAME [CMD [ARG…]]"}, Summary: "make an image from the changes of a sandbox",
			About: `Makes an image from a sandbox: the image of the sandbox, with the changed files as a new layer. Processes, and files in
/out or a --workspace, are not included. The files of a sandbox with processes are copied, as in demesne fork.

CMD becomes the command of the new image. The rest of the configuration comes from the old image, unless flags override
it. A sandbox on the host's own files has no image, and cannot be committed.`,
			Examples: []cmdline.Example{
				{Says: "install a package, and make an image", Line: "demesne exec build -- pip install flask; demesne commit build local/flask"},
				{Says: "set a command and a variable", Line: "demesne commit --env PORT=80 build local/app:2 -- python app.py"},
			},
			Operand: cmdline.Sandbox,
		},
		New: func(a *app.App) app.Options { return &commitOptions{App: a} },
	}
}

type commitOptions struct {
	*app.App
	launch.ProcessOptions
	json, quiet bool
}

func (o *commitOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: app.GroupCommand, Long: "env", Arg: "NAME[=VALUE]", Repeat: true, Set: cmdline.List(&o.Variables, app.CheckEnv),
			Help: "set a variable for the image's commands; NAME alone takes the value from this environment"},
		{Group: app.GroupCommand, Long: "workdir", Arg: "PATH", Set: o.SetWorkdir, Help: "directory that commands start in"},
		{Group: app.GroupCommand, Long: "user", Arg: "USER", Set: o.SetUser, Help: "user that commands run as"},
	}, o.EntrypointFlag(), madeFlags(&o.json, &o.quiet))
}

func (o *commitOptions) Run(args []string) (int, error) {
	if len(args) < 2 {
		return 0, text.Hinted(errors.New("needs a sandbox and an image name"), "demesne commit build local/app")
	}
	refs, err := named(args[1:2])
	if err != nil {
		return 0, err
	}
	cmd := args[2:]
	if len(cmd) > 0 && cmd[0] == "--" {
		cmd = cmd[1:]
	}
	change, err := change(&o.ProcessOptions, o.Env, cmd)
	if err != nil {
		return 0, err
	}
	return o.WithImages(func(ctx context.Context, c *images.Client) (int, error) {
		img, err := o.commit(ctx, c, args[0], refs[0], change)
		if err != nil {
			return 0, err
		}
		if o.json {
			return o.PrintJSON(infoOf(images.Listed{Image: img}))
		}
		return tell(&o.Console, o.json, o.quiet, refs[0], img)
	})
}

// change returns the configuration changes that the flags of commit ask for.
func change(o *launch.ProcessOptions, lookup func(string) (string, bool), cmd []string) (images.Change, error) {
	env, err := o.Environment(lookup)
	c := images.Change{Env: env, Entrypoint: o.Entrypoint, WorkingDir: o.Workdir, User: o.UserName}
	if o.User != nil {
		c.User = fmt.Sprintf("%d:%d", o.User.UID, o.User.GID)
	}
	if len(cmd) > 0 {
		c.Cmd = &cmd
	}
	return c, err
}

// commit takes a snapshot, so that the sandbox can go on, and makes an image from the snapshot's layers.
func (o *commitOptions) commit(ctx context.Context, c *images.Client, id string, ref imageref.Ref, change images.Change) (*images.Image, error) {
	s := o.Session(session.Options{})
	defer s.Close()
	eng, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	info, err := eng.Inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	root := info.Spec.Rootfs
	switch {
	case root == nil:
		return nil, text.Hinted(fmt.Errorf("sandbox %q: runs on this machine's own files, not on an image", id), "demesne create --image NAME creates a sandbox that can be committed")
	case root.Digest == "" || root.Store != c.Store.Dir():
		return nil, text.Hinted(fmt.Errorf("sandbox %q: its image is not in the store %q", id, c.Store.Dir()), "demesne import makes an image from a directory")
	}
	snap, err := eng.EphemeralSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.Discard(snap.ID) // if this process dies, the runner removes it
	layers, err := layersOf(ctx, s, eng, snap.ID)
	defer func() {
		for _, f := range layers {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	img, err := c.Commit(ctx, oci.Digest(root.Digest), layers, change, ref)
	if err == nil {
		err = c.Unpack(ctx, img, nil) // as pull does
	}
	return img, err
}

// layersOf writes the layers to unnamed files, which need no removal.
func layersOf(ctx context.Context, s *session.Service, eng session.Engine, id string) (layers []*os.File, err error) {
	dir, err := s.OutputRoot()
	if err != nil {
		return nil, err
	}
	for n, of := 0, 1; n < of; n++ {
		f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
		if err != nil {
			return layers, fmt.Errorf("make file for a layer: %w", err)
		}
		did, err := eng.Layer(ctx, id, n, runner.LayerOptions{}, f)
		if err == nil && did.Entries > 0 {
			layers = append(layers, f)
		} else {
			f.Close()
		}
		if err != nil {
			return layers, err
		}
		of = did.Layers
	}
	return layers, nil
}
