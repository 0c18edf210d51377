package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"

	"demesne/rootfs/layers"
)

// written is a layer whose files are all there, and that has no name yet.
type written struct {
	*layers.Writer
	layer Layer
	notes Notes
}

// unpack makes the files of one layer and passes it on, if it is not in the cache.
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

// publish names the layers that arrive. While the disk takes some, others are made: those that wait by
// then go together.
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
	// A blob that is not what it should be explains every other error.
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
		// What follows the end of an archive belongs to its DiffID.
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

// What layers may unpack to: denseFree bytes, those of all layers together, and denseRatio times a layer's own size.
// images/archive has the same bounds for archives.
const (
	denseFree  = 512 << 20
	denseRatio = 256
)

// allow returns what judges the size of the archive in a blob, so far. It reads what is known of the blob, and is called
// where that is read.
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

// meter returns what is told of a layer's progress.
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
