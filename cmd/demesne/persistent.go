package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"demesne/cmd/internal/session/egress"
	"demesne/cmd/internal/session/quota"
	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner"
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

// roomFor removes a new sandbox if the user now has more persistent sandboxes than allowed.
func (a *app) roomFor(ctx context.Context, eng engine, id string) error {
	most, err := quota.Sandboxes(func(k string) string { v, _ := a.env(k); return v })
	n := 0
	if err == nil {
		n, err = eng.Count(ctx)
	}
	if err == nil {
		err = quota.Full(n, most)
	}
	if err != nil {
		stop(eng, id)
	}
	if errors.Is(err, quota.ErrFull) {
		return hinted(err, "demesne rm ID removes one of those that demesne ls lists; $%s is how many there may be", quota.VarSandboxes)
	}
	return err
}

// ofKey returns the id of the sandbox with that key.
func ofKey(ctx context.Context, eng engine, key string) (string, error) {
	infos, err := eng.List(ctx)
	if err != nil {
		return "", err
	}
	for _, i := range infos {
		if i.Spec.Key == key && i.Spec.Door == runner.DoorCLI && i.State != runner.Snapshot {
			return i.ID, nil
		}
	}
	return "", hinted(fmt.Errorf("key %q: no sandbox has it", key), "demesne run --key %s makes one", key)
}

// again returns a function that adds to a restarted sandbox what no file stores: the caller's upstream proxy,
// and the secrets that o names.
func (a *app) again(o *options) (add func(*runner.Spec), err error) {
	if err := o.network.checkSecrets(); err != nil {
		return nil, err
	}
	err = o.network.findSecrets(a)
	return func(spec *runner.Spec) {
		spec.Egress.Upstream = egress.Upstream(func(k string) string { v, _ := a.env(k); return v })
		spec.Egress.Secrets = o.network.found
	}, err
}

// tellRestarted prints that a sandbox was restarted, and which secrets it lacks.
func (a *app) tellRestarted(verb string, b *box) {
	if b.Restarted {
		a.say(fmt.Sprintf("%s: sandbox %s had ended; it was started again over its files, without its processes", verb, b.ID))
	}
	if len(b.Lacks) > 0 {
		a.say(fmt.Sprintf("%s: sandbox %s was started without its secrets: %s", verb, b.ID, strings.Join(b.Lacks, ", ")))
		fmt.Fprintf(a.stderr, "hint: demesne stop %s, then exec with --secret and --secret-for gives them to it\n", b.ID)
	}
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
	if err != nil || !fsutil.Exists(dir) {
		return release, nil, err
	}
	eng, err := a.connect(ctx, client.Options{})
	if err != nil {
		return release, nil, err
	}
	defer eng.Close()
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
