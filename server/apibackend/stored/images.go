// Package stored has what the HTTP API gives of this machine: images of the user's store, and directories, within the bounds of the
// operator.
package stored

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"demesne/client"
	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/server"
	"demesne/server/apibackend/kinds"
	"demesne/session"
	"demesne/session/operator"
)

// Images is the store, for the callers of one namespace.
type Images struct {
	Service *session.Service
	Policy  *operator.Policy
	Queue   *server.Queue
}

// HasImage reports whether a sandbox can have an image: it is not of the store, or is there.
func (b *Images) HasImage(ctx context.Context, name string) bool {
	ref, _, err := b.Policy.Image(name)
	if err != nil || !ref.Stored() {
		return err == nil
	}
	c, err := session.OpenImages()
	if err != nil {
		return false
	}
	_, err = c.Store.Lookup(ref)
	return err == nil
}

// ListImages implements [rest.Images].
func (b *Images) ListImages(context.Context) ([]client.Image, error) {
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	list, err := c.Store.List()
	if err != nil {
		return nil, err
	}
	all, foreign := []client.Image{}, b.Policy.Namespace != ""
	for _, l := range list {
		i := imageOf(l)
		if foreign { // names can be another namespace's
			i.Names = slices.DeleteFunc(i.Names, func(name string) bool { _, _, err := b.Policy.Image(name); return err != nil })
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
func (b *Images) storeRef(name string) (imageref.Ref, error) {
	ref, _, err := b.Policy.Image(name)
	if err == nil && !ref.Stored() {
		err = fmt.Errorf("%w: image %q: not in a store", session.ErrInvalid, name)
	}
	return ref, kinds.Invalid(err)
}

// Pull implements [rest.Images].
func (b *Images) Pull(ctx context.Context, name string, progress func(string)) (*client.Image, error) {
	ref, err := b.storeRef(name)
	if err != nil {
		return nil, err
	}
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	img, err := c.Pull(ctx, ref, lines(progress))
	if err != nil {
		return nil, kinds.OfImage(session.NamedImage(ref, err))
	}
	done := imageOf(images.Listed{Image: img})
	return &done, nil
}

// PullPrivate implements [server.Sandboxes].
func (b *Images) PullPrivate(ctx context.Context, p server.Private, log io.Writer) error {
	ref, pull, err := b.Policy.Image(p.Image)
	if err != nil {
		return kinds.Invalid(err)
	}
	if pull == images.PullNever {
		return fmt.Errorf("%w: image %q: the operator allows only the store's image of this name, and a login is for a registry", session.ErrInvalid, p.Image)
	}
	as, err := session.ParseImage(p.As)
	if err != nil {
		return err
	}
	c, err := session.OpenImages()
	if err != nil {
		return err
	}
	defer c.Store.Close()
	_, err = c.PullPrivate(ctx, ref, p.Login, as, lines(func(line string) { fmt.Fprintln(log, line) }))
	if failure, ok := errors.AsType[*events.Failure](err); ok && failure.Code == events.CodeDenied {
		err = fmt.Errorf("%w (give the user name and password of an account that may pull this image)", err)
	}
	return kinds.OfImage(session.NamedImage(ref, err))
}

// lines returns a function that passes on events as lines.
func lines(progress func(string)) func(events.Event) {
	return func(e events.Event) {
		if line := said(e); line != "" {
			progress(line)
		}
	}
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

// RemoveImage implements [rest.Images].
func (b *Images) RemoveImage(ctx context.Context, name string) error {
	ref, err := b.storeRef(name)
	if err != nil {
		return err
	}
	c, err := session.OpenImages()
	if err != nil {
		return err
	}
	defer c.Store.Close()
	release, _, err := b.Service.HoldStored(ctx, c.Store, nil)
	if err != nil {
		return kinds.Of(err)
	}
	defer release()
	_, err = c.Store.Remove(ctx, ref, false)
	if errors.Is(err, images.ErrInUse) {
		return kinds.As(err, session.ErrConflict)
	}
	return kinds.OfImage(session.NamedImage(ref, err))
}
