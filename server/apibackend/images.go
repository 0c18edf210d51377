package apibackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"demesne/client"
	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/session"
)

// ListImages implements [rest.Images].
func (b *Backend) ListImages(context.Context) ([]client.Image, error) {
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	list, err := c.Store.List()
	if err != nil {
		return nil, err
	}
	all, foreign := []client.Image{}, b.policy.Namespace != ""
	for _, l := range list {
		i := imageOf(l)
		if foreign { // names can be another namespace's
			i.Names = slices.DeleteFunc(i.Names, func(name string) bool { _, _, err := b.policy.Image(name); return err != nil })
		}
		if !foreign || len(i.Names) > 0 {
			all = append(all, i)
		}
	}
	return all, nil
}

// imageOf describes an image. A name that is a path of the host is left out.
func imageOf(l images.Listed) client.Image {
	i := client.Image{
		Names: []string{}, Digest: string(l.Digest), Size: l.Size - l.Dropped, InUse: l.InUse, Created: l.Created, Pulled: l.Pulled, Used: l.Used,
	}
	for _, name := range l.Names {
		if ref, err := imageref.Parse(name); err == nil && !ref.Local() {
			i.Names = append(i.Names, name)
		}
	}
	if c := l.Config; c.OS != "" {
		i.Platform = c.OS + "/" + c.Architecture
	}
	if l.Err != nil {
		i.Damage = "damaged"
	}
	return i
}

// storeRef parses the name of an image that a store can have.
func (b *Backend) storeRef(name string) (imageref.Ref, error) {
	ref, _, err := b.policy.Image(name)
	if err == nil && !ref.Stored() {
		err = fmt.Errorf("%w: image %q: not in a store", session.ErrInvalid, name)
	}
	return ref, invalid(err)
}

// Pull implements [rest.Images].
func (b *Backend) Pull(ctx context.Context, name string, progress func(string)) (*client.Image, error) {
	ref, err := b.storeRef(name)
	if err != nil {
		return nil, err
	}
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	img, err := c.Pull(ctx, ref, func(e events.Event) {
		if line := said(e); line != "" {
			progress(line)
		}
	})
	if err != nil {
		return nil, imageError(session.NamedImage(ref, err))
	}
	done := imageOf(images.Listed{Image: img})
	return &done, nil
}

// said describes an event in one line, or returns "".
func said(e events.Event) string {
	id := string(e.Digest)
	if id == "" {
		id = string(e.DiffID)
	}
	if len(id) > 19 {
		id = id[:19]
	}
	switch e.Event {
	case events.Layer:
		if e.Total > 0 {
			return fmt.Sprintf("%s %s %d of %d", id, e.State, e.Bytes, e.Total)
		}
		return fmt.Sprintf("%s %s", id, e.State)
	case events.Retry, events.Notice:
		return e.Why
	}
	return ""
}

// imageKinds are the errors of package server, by the codes of demesne-images.
var imageKinds = map[events.Code]error{
	events.CodeNotFound: session.ErrInvalid, events.CodeInvalid: session.ErrInvalid, events.CodeDenied: session.ErrInvalid,
	events.CodePlatform: session.ErrInvalid, events.CodeUnsupported: session.ErrInvalid, events.CodeNoImage: session.ErrInvalid,
	events.CodePolicy: session.ErrInvalid, events.CodeRefused: session.ErrInvalid, events.CodeCorrupt: session.ErrRegistry,
	events.CodeUnreachable: session.ErrRegistry, events.CodeBusy: session.ErrBusy, events.CodeNoSpace: syscall.ENOSPC,
}

// imageKind returns the kind of a failure of demesne-images; nil: err has no kind, or is this machine's own fault.
func imageKind(err error) error {
	var failure *events.Failure
	if errors.As(err, &failure) {
		return imageKinds[failure.Code]
	}
	return nil
}

// imageError gives an error about an image of the store its kind.
func imageError(err error) error {
	if errors.Is(err, images.ErrNotFound) {
		return kinded{err, session.ErrNotFound}
	}
	return classified(err)
}

// RemoveImage implements [rest.Images].
func (b *Backend) RemoveImage(ctx context.Context, name string) error {
	ref, err := b.storeRef(name)
	if err != nil {
		return err
	}
	c, err := session.OpenImages()
	if err != nil {
		return err
	}
	defer c.Store.Close()
	release, _, err := b.service.HoldStored(ctx, c.Store, nil)
	if err != nil {
		return classified(err)
	}
	defer release()
	_, err = c.Store.Remove(ctx, ref, false)
	if errors.Is(err, images.ErrInUse) {
		return kinded{err, session.ErrConflict}
	}
	return imageError(session.NamedImage(ref, err))
}
