package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"

	"demesne/rootfs/layers"
)

// written is a complete layer that is not yet published.
type written struct {
	*layers.Writer
	layer Layer
	notes Notes
}

// unpack unpacks one layer and passes it on, unless it is in the cache.
func (u *unpacker) unpack(ctx context.Context, l Layer, out chan<- written) error {
	if !mediaTypes[l.MediaType] {
		return &RefusedError{Reason: BadMedia, Err: fmt.Errorf("%.100q", l.MediaType)}
	}
	w, err := u.cache.Begin(ctx, layers.DiffID(l.DiffID))
	if errors.Is(err, layers.ErrPresent) {
		u.tell(Event{Layer: l, State: Present})
		return nil
	}
	if err != nil {
		return err
	}
	f := &filter{limits: u.Limits, owners: u.owners}
	if err := u.write(ctx, l, w.Dir, f); err != nil {
		return errors.Join(err, w.Abort())
	}
	w.Disk = f.disk
	out <- written{w, l, f.notes}
	return nil
}

// publish publishes the layers that arrive. While the disk writes some, others are unpacked, and all that wait are
// then published together.
func (u *unpacker) publish(in <-chan written) (err error) {
	for first := range in {
		batch := []written{first}
		for len(in) > 0 {
			batch = append(batch, <-in)
		}
		var writers []*layers.Writer
		for _, w := range batch {
			writers = append(writers, w.Writer)
		}
		if e := layers.Publish(writers...); e != nil {
			err = errors.Join(err, e)
			continue
		}
		for _, w := range batch {
			u.tell(Event{Layer: w.layer, State: Done, Bytes: w.layer.Size, Notes: w.notes})
		}
	}
	return err
}

// write makes the layer's files in dir, and verifies the blob and the archive on the way.
func (u *unpacker) write(ctx context.Context, l Layer, dir string, f *filter) error {
	file, err := u.Blobs(l.Digest)
	if err != nil {
		return err
	}
	defer file.Close()
	u.tell(Event{Layer: l, State: Unpacking})
	b := newBlob(ctx, file, l, u.meter(l))
	err = u.stream(b, dir, f)
	// A corrupt blob explains every other error.
	if corrupt := b.verify(); corrupt != nil {
		return corrupt
	}
	return err
}

// stream unpacks the archive in b.
func (u *unpacker) stream(b *blob, dir string, f *filter) error {
	archive, err := decompress(b)
	if err != nil {
		return err
	}
	defer archive.Close()
	p := newPipe(archive, u.allow(b))
	err = within(dir, func() error { return extract(p, f) })
	if err == nil {
		// Bytes after the end of the archive belong to its DiffID too.
		if _, err = io.Copy(io.Discard, p); err != nil {
			err = readError(err)
		}
	}
	p.close()
	if got := digest.NewDigest(digest.SHA256, p.sum); err == nil && got != b.layer.DiffID {
		return &RefusedError{Reason: BadDiffID, Err: fmt.Errorf("%s instead of %s", got, b.layer.DiffID)}
	}
	return err
}

// Limits of the unpacked size. Bytes of a layer beyond denseRatio times its packed size count, and all layers
// together may have denseFree of them. images/archive has the same bounds for archives.
const (
	denseFree  = 512 << 20
	denseRatio = 256
)

// allow returns a function that checks the size so far of the archive in a blob. It reads b.read without a lock, so
// only the goroutine that reads the blob may call it.
func (u *unpacker) allow(b *blob) func(size int64) error {
	var taken int64
	return func(size int64) error {
		if size > u.Limits.Bytes {
			return &RefusedError{Reason: TooBig}
		}
		if over := size - denseRatio*b.read; over > taken {
			if u.spare.Add(taken-over) < 0 {
				return &RefusedError{Reason: TooDense}
			}
			taken = over
		}
		return nil
	}
}

// meter returns a function that reports a layer's progress.
func (u *unpacker) meter(l Layer) func(int64) {
	var told int64
	return func(read int64) {
		if read-told < progress {
			return
		}
		told = read
		u.tell(Event{Layer: l, State: Unpacking, Bytes: read})
	}
}
