package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"demesne/images"
	"demesne/runner"
)

func stopFlags(o *options) flagSet {
	return flagSet{{group: groupGeneral, long: "keep", set: on(&o.keep), help: "end the processes, and keep the files"}}
}

// tellRestarted says what a person would otherwise wonder about.
func (a *app) tellRestarted(b *box) {
	if b.Restarted {
		a.say(fmt.Sprintf("exec: sandbox %s had ended; it was started again over its files, without its processes", b.ID))
	}
}

// holdKept holds the images of sandboxes that only their files are left of: nobody else does,
// and without their image they could not be started again. With sweep it removes those
// whose time is over first. Where no sandbox was ever kept it starts nothing.
func (a *app) holdKept(ctx context.Context, s *images.Store, sweep bool) (release func(), err error) {
	var held []io.Closer
	release = func() {
		for _, h := range held {
			h.Close()
		}
	}
	dir, err := runner.SandboxRoot()
	if err != nil || !exists(dir) {
		return release, err
	}
	eng, err := a.connect(ctx, runner.Options{})
	if err != nil {
		return release, err
	}
	defer eng.Close()
	if sweep {
		if _, err := eng.Sweep(ctx); err != nil {
			return release, err
		}
	}
	infos, err := eng.List(ctx)
	if err != nil {
		return release, err
	}
	for _, i := range infos {
		if i.Spec.Rootfs == nil || i.Spec.Rootfs.Digest == "" || i.Spec.Rootfs.Store != s.Dir() {
			continue
		}
		h, err := s.Hold(ctx, images.Digest(i.Spec.Rootfs.Digest))
		if errors.Is(err, images.ErrNotFound) { // taken away by force
			continue
		}
		if err != nil {
			release()
			return release, err
		}
		held = append(held, h)
	}
	return release, nil
}
