package main

import (
	"context"
	"errors"
	"io"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/session"
	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner/client"
)

func removeFlags(o *options) cli.Flags {
	return cli.Flags{{Group: cli.GroupGeneral, Long: "force", Short: 'f', Set: cli.On(&o.force), Help: "ignore sandboxes that do not exist"}}
}

// keyFlag is a flag of create, run and exec. With it, exec takes no sandbox argument.
func keyFlag(o *lifeOptions, help string) cli.Flags {
	return cli.Flags{{Group: groupSandbox, Long: "key", Arg: "KEY", Set: cli.Text(&o.key), Help: help}}
}

// replaceFlag is a flag of create and run.
func replaceFlag(o *lifeOptions) cli.Flags {
	return cli.Flags{{Group: groupSandbox, Long: "replace", Set: cli.On(&o.replace),
		Help: "first remove the sandbox that has the key, with its files"}}
}

// lifeFlags returns the flags about the lifetime of a persistent sandbox.
func lifeFlags(o *lifeOptions) cli.Flags {
	return cli.Flags{
		{Group: groupSandbox, Long: "ttl", Arg: "DURATION", Set: cli.Duration(&o.ttl),
			Help: "how long the sandbox exists after its last command (default 48h)"},
		{Group: groupSandbox, Long: "max-age", Arg: "DURATION", Set: cli.Duration(&o.maxAge),
			Help: "how long the sandbox exists at most, even in use (default no limit)"},
		{Group: groupSandbox, Long: "pause-idle", Arg: "DURATION", Set: cli.Duration(&o.pauseIdle),
			Help: "pause its processes (SIGSTOP) after this time without a command, until the next command; paused servers do not answer (default never)"},
	}
}

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(o *processOptions) cli.Flags {
	return cli.Flags{{Group: groupCommand, Long: "queue", Set: cli.On(&o.queue),
		Help: "run after all earlier --queue commands for this sandbox, calls of agents included"}}
}

// holdKept locks the images of stored sandboxes, which nothing else locks while they have no processes; they
// could not be restarted without them. layers lists every layer that sandboxes use, including those of images
// that were removed by force. With sweep it first removes expired sandboxes. If no sandbox was ever stored, it
// starts no runner.
func (t imageTool) holdKept(ctx context.Context, s *images.Store, sweep bool) (release func(), layers []oci.Digest, err error) {
	var held []io.Closer
	release = func() {
		for _, h := range held {
			h.Close()
		}
	}
	dir, err := client.SandboxRoot()
	if err != nil || !fsutil.Exists(dir) {
		return release, nil, err
	}
	sess := t.session(&network{})
	defer sess.Close()
	eng, err := sess.Engine(ctx)
	if err != nil {
		return release, nil, err
	}
	if sweep {
		if _, err := eng.GC(ctx); err != nil {
			return release, nil, err
		}
	}
	infos, err := session.ListAll(ctx, eng)
	if err != nil {
		return release, nil, err
	}
	for _, i := range infos {
		if i.Spec.Rootfs == nil || i.Spec.Rootfs.Digest == "" || i.Spec.Rootfs.Store != s.Dir() {
			continue
		}
		for _, id := range i.Spec.Rootfs.Layers {
			layers = append(layers, oci.Digest(id))
		}
		h, err := s.Hold(ctx, oci.Digest(i.Spec.Rootfs.Digest))
		if errors.Is(err, images.ErrNotFound) { // the image was removed by force
			continue
		}
		if err != nil {
			release()
			return release, nil, err
		}
		held = append(held, h)
	}
	return release, layers, nil
}
