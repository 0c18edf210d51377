package worker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"

	"demesne/images"
	"demesne/images/archive"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
	"demesne/internal/fsutil"
)

// importImage makes an image from a root file system, or copies the image in an archive.
func (c *call) importImage() error {
	return c.result(c.args[1], func(store *images.Store, ref imageref.Ref) (oci.Digest, error) {
		path := c.args[0]
		kind, err := archive.Recognize(path)
		switch {
		case err != nil:
			return "", err
		case kind == imageref.Directory:
			notice := func(why string) { c.out.send(events.Event{Event: events.Notice, Why: why}) }
			return archive.Import(c.ctx, store, path, ref, notice)
		}
		return c.load(kind, path, "", ref, pull.Options{Store: store, Transfer: pull.Transfer{Report: c.out.send}})
	})
}

// load copies the image in a layout or archive into the store, under a name.
func (c *call) load(kind imageref.Kind, path, tag string, name imageref.Ref, o pull.Options) (oci.Digest, error) {
	src, err := archive.Open(c.ctx, kind, path, tag, c.dir)
	if err != nil {
		return "", err
	}
	defer src.Close()
	return pull.Copy(c.ctx, src, name, o)
}

// commitImage makes an image from an existing one and the layers given on descriptors.
func (c *call) commitImage() error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	base, err1 := imageref.Parse(c.args[0])
	ref, err2 := imageref.Parse(c.args[1])
	n, err3 := strconv.Atoi(cmp.Or(c.options["layers"], "0"))
	var change images.Change
	err4 := json.Unmarshal([]byte(cmp.Or(c.options["change"], "{}")), &change)
	if err := errors.Join(err1, err2, err3, err4); err != nil || n < 0 || n > oci.MaxLayers {
		return usage("commit %q: %v", c.args, err)
	}
	img, err := store.Lookup(base)
	if err != nil {
		return err
	}
	if err := c.fetch(store, img); err != nil {
		return err
	}
	layers := make([]string, n)
	for i := range layers {
		layers[i] = fsutil.FDPath(3 + i)
	}
	digest, err := archive.Commit(c.ctx, store, img, layers, change, ref)
	if err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result, Digest: digest})
	return nil
}

// saveImage writes an image as an archive.
func (c *call) saveImage() error {
	return c.write(func(ctx context.Context, store *images.Store, img *images.Image, ref imageref.Ref, w io.Writer) error {
		return archive.Save(ctx, store, img, ref, c.options["format"], w)
	})
}

// exportImage writes the root file system of an image as a tar.
func (c *call) exportImage() error {
	return c.write(func(ctx context.Context, store *images.Store, img *images.Image, _ imageref.Ref, w io.Writer) error {
		return archive.Export(ctx, store, img, w)
	})
}

// whole finds an image, locks it against garbage collection until the caller closes held, and fetches the blobs that the
// store lacks.
func (c *call) whole(store *images.Store, ref imageref.Ref) (img *images.Image, held io.Closer, err error) {
	if img, err = store.Lookup(ref); err != nil {
		return nil, nil, err
	}
	if held, err = store.Hold(c.ctx, img.Digest); err != nil {
		return nil, nil, err
	}
	if err := c.fetch(store, img); err != nil {
		held.Close()
		return nil, nil, err
	}
	return img, held, nil
}

// write finds an image, locks it against garbage collection, opens the destination, and calls do.
func (c *call) write(do func(context.Context, *images.Store, *images.Image, imageref.Ref, io.Writer) error) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	ref, err := imageref.Parse(c.args[0])
	if err != nil {
		return usage("%v", err)
	}
	img, held, err := c.whole(store, ref)
	if err != nil {
		return err
	}
	defer held.Close()
	f, err := os.OpenFile(c.args[1], os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 256<<10)
	if err := do(c.ctx, store, img, ref, w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result, Digest: img.Digest})
	return f.Close()
}
