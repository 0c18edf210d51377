package pull

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
)

const (
	chunk = 256 << 10
	// progressEvery is the minimum time between two progress events of a layer.
	progressEvery = 100 * time.Millisecond
	// enough is the number of bytes after which an attempt resets the count of attempts.
	enough = 1 << 20
)

// blob downloads one blob into the store, and resumes where an earlier process stopped. It reports
// whether the store already had the blob.
func (p *puller) blob(ctx context.Context, d oci.Descriptor) (present bool, err error) {
	w, err := p.Store.Begin(ctx, d.Digest, d.Size)
	if errors.Is(err, images.ErrPresent) {
		return true, p.has(ctx, d)
	}
	if err != nil {
		return false, err
	}
	if w.Offset() == 0 {
		// A failure leaves less to download, or the whole blob.
		if err := p.assemble(ctx, &meter{p: p, w: w, d: d}, d); err != nil {
			p.Report(events.Event{Event: events.Retry, Digest: d.Digest, Why: "without parts of other tags: " + OneLine(err)})
		}
	}
	err = p.fill(ctx, w, d)
	if again(err, w.Offset()) {
		p.Report(events.Event{Event: events.Retry, Digest: d.Digest, Why: "from the start: " + OneLine(err)})
		err = p.afresh(ctx, d)
	}
	if errors.Is(err, images.ErrCorrupt) {
		err = errorf(events.CodeCorrupt, "download blob %s: the content has another digest or length", d.Digest)
	}
	return false, err
}

// has checks that an archive has a blob that the store has too. The store is shared: a caller who knows only the digest of
// a layer must not get an image with its content. A registry is trusted to have what its manifests name.
func (p *puller) has(ctx context.Context, d oci.Descriptor) error {
	if !p.copies {
		return nil
	}
	body, err := p.src.Blob(ctx, d, 0)
	if err != nil {
		return err
	}
	defer body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(body, d.Size+1)); err != nil {
		return err
	}
	if oci.DigestFrom(h.Sum(nil)) != d.Digest {
		return errorf(events.CodeCorrupt, "read blob %s: the content has another digest or length", d.Digest)
	}
	return nil
}

// again reports whether a download from the start may succeed where this one failed: after damage on
// the way or on the disk, and with a registry that handles ranges wrongly.
func again(err error, offset int64) bool {
	if err == nil {
		return false
	}
	code := Classify(err)
	return code == events.CodeCorrupt || offset > 0 && code == events.CodeInternal
}

// afresh downloads a blob from the start.
func (p *puller) afresh(ctx context.Context, d oci.Descriptor) error {
	w, err := p.Store.Begin(ctx, d.Digest, d.Size)
	if errors.Is(err, images.ErrPresent) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.Restart(); err != nil {
		return errors.Join(err, w.Close())
	}
	return p.fill(ctx, w, d)
}

// fill downloads the rest of a blob and commits it. It gives up after tries attempts without
// progress. It closes w.
func (p *puller) fill(ctx context.Context, w *images.BlobWriter, d oci.Descriptor) error {
	defer w.Close()
	for try := 1; w.Offset() < d.Size; try++ {
		before := w.Offset()
		err := p.once(ctx, func(ctx context.Context, idle *idle) error { return p.download(ctx, idle, w, d) })
		if err == nil {
			break
		}
		if w.Offset()-before >= enough {
			try = 1
		}
		if try >= tries || ctx.Err() != nil || !Transient(err) {
			return err
		}
		if err := p.pause(ctx, d.Digest, try, err); err != nil {
			return err
		}
	}
	return w.Commit(ctx)
}

// download reads a blob from the writer's offset to its end. It checks only the length; Commit
// verifies the digest.
func (p *puller) download(ctx context.Context, idle *idle, w *images.BlobWriter, d oci.Descriptor) error {
	body, err := p.src.Blob(ctx, d, w.Offset())
	if err != nil {
		return err
	}
	defer body.Close()
	defer idle.done() // before Close, which would otherwise read the rest
	if _, err := io.CopyBuffer(&meter{p: p, w: w, d: d}, idle.reader(body), make([]byte, chunk)); err != nil {
		return err
	}
	if w.Offset() < d.Size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// meter reports the progress of a blob at most every progressEvery.
type meter struct {
	p    *puller
	w    *images.BlobWriter
	d    oci.Descriptor
	said time.Time
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.w.Write(b)
	if now := time.Now(); now.Sub(m.said) >= progressEvery {
		m.said = now
		m.p.Report(events.Event{Event: events.Layer, State: events.Pulling, Digest: m.d.Digest, Bytes: m.w.Offset(), Total: m.d.Size})
	}
	return n, err
}
