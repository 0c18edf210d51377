package session

import (
	"context"
	"errors"
	"io"

	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// HoldStored locks the images of stored sandboxes, which nothing else locks while they have no processes; they
// could not be restarted without them. layers lists every layer that sandboxes use, including those of images
// that were removed by force. Unless sweep is nil, it first removes expired sandboxes, and calls sweep if files of another
// id map are left. If no sandbox was ever stored, it does not connect.
func (s *Service) HoldStored(ctx context.Context, store *images.Store, sweep func(left error)) (release func(), layers []oci.Digest, err error) {
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
	eng, err := s.Engine(ctx)
	if err != nil {
		return release, nil, err
	}
	if sweep != nil {
		_, err := eng.GC(ctx)
		var e *ipc.Error
		switch {
		case errors.As(err, &e) && e.Code == ipc.CodeRequirement:
			sweep(err)
		case err != nil:
			return release, nil, err
		}
	}
	infos, err := ListAll(ctx, eng)
	if err != nil {
		return release, nil, err
	}
	for _, i := range infos {
		if i.Spec.Rootfs == nil || i.Spec.Rootfs.Digest == "" || i.Spec.Rootfs.Store != store.Dir() {
			continue
		}
		for _, id := range i.Spec.Rootfs.Layers {
			layers = append(layers, oci.Digest(id))
		}
		h, err := store.Hold(ctx, oci.Digest(i.Spec.Rootfs.Digest))
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
