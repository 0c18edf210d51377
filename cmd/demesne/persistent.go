package main

import (
	"context"
	"errors"
	"io"

	"demesne/images"
	"demesne/images/oci"
	"demesne/runner/client"
)

func removeFlags(o *options) flagSet {
	return flagSet{{group: groupGeneral, long: "force", short: 'f', set: on(&o.force), help: "ignore sandboxes that do not exist"}}
}

// keyFlag is a flag of create, run and exec. With it, exec takes no sandbox argument.
func keyFlag(o *options, help string) flagSet {
	return flagSet{{group: groupSandbox, long: "key", arg: "KEY", set: text(&o.key), help: help}}
}

// replaceFlag is a flag of create and run.
func replaceFlag(o *options) flagSet {
	return flagSet{{group: groupSandbox, long: "replace", set: on(&o.replace),
		help: "remove the sandbox that has the key, with its files, and make it anew"}}
}

// lifeFlags returns the flags about the lifetime of a persistent sandbox.
func lifeFlags(o *options) flagSet {
	return flagSet{
		{group: groupSandbox, long: "ttl", arg: "DURATION", set: durationFlag(&o.ttl),
			help: "how long it exists after the last command in it (default 48h)"},
		{group: groupSandbox, long: "max-age", arg: "DURATION", set: durationFlag(&o.maxAge),
			help: "how long it stays at the most, used or not (default for ever)"},
		{group: groupSandbox, long: "pause-idle", arg: "DURATION", set: durationFlag(&o.pauseIdle),
			help: "stop what runs in it (SIGSTOP) when there was no command for so long, until the next one; servers do not answer meanwhile (default never)"},
	}
}

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(o *options) flagSet {
	return flagSet{{group: groupCommand, long: "queue", set: on(&o.queue),
		help: "wait for the commands with --queue that came earlier for this sandbox, calls of agents included, and go on one at a time, in order"}}
}

// holdKept locks the images of stored sandboxes, which nothing else locks while they have no processes; they
// could not be restarted without them. layers lists every layer that sandboxes use, including those of images
// that were removed by force. With sweep it first removes expired sandboxes. If no sandbox was ever stored, it
// starts no runner.
func (a *app) holdKept(ctx context.Context, s *images.Store, sweep bool) (release func(), layers []oci.Digest, err error) {
	var held []io.Closer
	release = func() {
		for _, h := range held {
			h.Close()
		}
	}
	dir, err := client.SandboxRoot()
	if err != nil || !exists(dir) {
		return release, nil, err
	}
	sess := a.session(&options{})
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
	infos, err := eng.List(ctx)
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
