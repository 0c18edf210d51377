package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"

	"demesne/rootfs/layers"
)

// unpack puts one layer into the cache.
func (u *unpacker) unpack(ctx context.Context, l Layer) error {
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
	if err := w.Commit(f.disk); err != nil {
		return err
	}
	u.tell(Event{Layer: l, State: Done, Bytes: l.Size, Notes: f.notes})
	return nil
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
	p := newPipe(archive, u.Limits.Bytes)
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
