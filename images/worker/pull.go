package worker

import (
	"demesne/images"
	"demesne/images/archive"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
)

// fetchImage downloads the blobs of an image that were dropped.
func (c *call) fetchImage() error {
	return c.result(c.args[0], func(store *images.Store, ref imageref.Ref) (oci.Digest, error) {
		img, err := store.Lookup(ref)
		if err == nil {
			err = c.fetch(store, img)
		}
		if err != nil {
			return "", err
		}
		return img.Digest, nil
	})
}

// pullFeature copies a dev container feature into the store, as an image of one layer.
func (c *call) pullFeature() error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	ref, err := imageref.Parse(c.args[0])
	if err != nil || ref.Kind != imageref.Registry {
		return usage("feature %q: not a name in a registry", c.args[0])
	}
	f, err := pull.Feature(c.ctx, ref, pull.Options{Store: store, Transfer: pull.Transfer{Report: c.out.send}})
	if err != nil {
		return err
	}
	d, err := archive.Feature(c.ctx, store, ref, f.Digest, f.Archive.Digest)
	if err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result, Digest: d})
	return nil
}

// pullImage copies an image into the store, from a registry or from files.
func (c *call) pullImage() error {
	return c.result(c.args[0], func(store *images.Store, ref imageref.Ref) (oci.Digest, error) {
		platform, err := pull.ParsePlatform(c.options["platform"])
		if err != nil {
			return "", err
		}
		options := pull.Options{Store: store, Platform: platform, Transfer: pull.Transfer{Report: c.out.send}}
		if c.options["username"] != "" {
			return c.pullPrivate(ref, options)
		}
		switch ref.Kind {
		case imageref.Registry:
			return pull.Image(c.ctx, ref, options)
		case imageref.OCILayout, imageref.OCIArchive, imageref.DockerArchive:
			return c.load(ref.Kind, ref.Path, ref.Tag, ref, options)
		}
		return "", usage("%q cannot be pulled from a registry or archive", ref)
	})
}

// pullPrivate copies an image from a registry with the password on a descriptor. What the registry answers may repeat the
// password, and is shown to people.
func (c *call) pullPrivate(ref imageref.Ref, options pull.Options) (oci.Digest, error) {
	as, err := imageref.Parse(c.options["as"])
	if err != nil || as.Kind != imageref.Registry || as.Explicit() {
		return "", usage("image %q as %q: not a name that only the store has", ref, c.options["as"])
	}
	password, err := readSecret()
	if err != nil {
		return "", err
	}
	login := images.Login{User: c.options["username"], Password: string(password)}
	c.out.hide(login)
	return pull.Private(c.ctx, ref, login, as, options)
}
