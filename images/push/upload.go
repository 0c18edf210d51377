package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
)

const (
	// chunk is the size of each request in a resumed upload: its length must be known before it is sent.
	chunk = 16 << 20
	// maxSources is the number of repositories that are asked for a blob.
	maxSources = 4
	// finishing is the rate, in bytes per second, at which the slowest registry verifies a blob.
	finishing = 10 << 20
)

// blob makes the repository have a blob, and says how: it had it, it was mounted, or it was sent.
func (p *pusher) blob(ctx context.Context, c *content) (events.State, error) {
	u := &upload{p: p, c: c}
	if d := c.known(); d.Digest != "" {
		state, err := p.find(ctx, u, d.Digest)
		if state != "" || err != nil {
			return state, err
		}
	}
	err := p.retry(ctx, c.layer, u.attempt)
	if err != nil {
		u.abandon()
		return "", err
	}
	return events.Pushed, nil
}

// find looks for a blob in the repository, and then in others of the registry. It returns "" if the blob has to be sent.
func (p *pusher) find(ctx context.Context, u *upload, d oci.Digest) (state events.State, err error) {
	there := false
	err = p.retry(ctx, u.c.layer, func(ctx context.Context) (err error) {
		there, err = p.to.has(ctx, d, p.to.path)
		return err
	})
	if err != nil {
		return "", err
	}
	if there {
		return events.Present, nil
	}
	for _, path := range p.sources(u.c.layer, d) {
		if there, err := p.to.has(ctx, d, path); err != nil || !there {
			continue // no right to read there, for example: the blob can still be sent
		}
		mounted, err := u.mount(ctx, d, path)
		if mounted {
			return events.Mounted, nil
		}
		if u.at != nil || ctx.Err() != nil {
			return "", ctx.Err()
		}
		_ = err // the blob can still be sent
	}
	return "", nil
}

// sources returns repositories of the registry that may have a blob, as the store knows.
func (p *pusher) sources(stored, d oci.Digest) (paths []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repos == nil {
		p.repos = p.copies.Repositories()
	}
	domain := strings.TrimSuffix(p.to.name, p.to.path)
	for _, name := range append(p.repos[stored], p.repos[d]...) {
		path, same := strings.CutPrefix(name, domain)
		if same && path != p.to.path && len(paths) < maxSources {
			paths = append(paths, path)
		}
	}
	return paths
}

// upload is the upload of one blob.
type upload struct {
	p  *pusher
	c  *content
	at *url.URL // where the registry wants the next bytes; nil: no upload has begun
	// cut is set once a request with a part of the blob failed. The registry then has to say where to continue.
	cut bool
}

// location reads where the upload continues.
func (u *upload) location(resp *http.Response) error {
	to, err := resp.Location()
	if err != nil {
		return errorf(events.CodeNoImage, "the registry gives no address for the upload: %w", err)
	}
	if to.Scheme != "https" && to.Scheme != u.p.to.base.Scheme {
		return errorf(events.CodeUnsupported, "the registry asks to upload by %q", oci.Clip(to.Scheme))
	}
	u.at, u.cut = to, false
	return nil
}

// mount asks the registry to take a blob from another repository. A registry that does not may begin an upload.
func (u *upload) mount(ctx context.Context, d oci.Digest, path string) (bool, error) {
	r := u.p.to
	to := r.url("blobs/uploads/")
	to.RawQuery = url.Values{"mount": {string(d)}, "from": {path}}.Encode()
	resp, err := r.do(ctx, http.MethodPost, to, nil, nil, 0, path)
	if err != nil {
		return false, err
	}
	if resp.StatusCode == http.StatusAccepted {
		return false, errors.Join(u.location(resp), accept(resp, http.StatusAccepted))
	}
	err = accept(resp, http.StatusCreated)
	return err == nil, err
}

// begin begins an upload.
func (u *upload) begin(ctx context.Context) error {
	resp, err := u.p.to.do(ctx, http.MethodPost, u.p.to.url("blobs/uploads/"), http.Header{"Content-Length": {"0"}}, nil, 0)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted {
		return refused(resp)
	}
	return errors.Join(u.location(resp), accept(resp, http.StatusAccepted))
}

// resume asks how many bytes the registry has. It begins again if the registry does not know.
func (u *upload) resume(ctx context.Context) (offset int64, err error) {
	if u.at != nil {
		resp, err := u.p.to.do(ctx, http.MethodGet, u.at, nil, nil, 0)
		if err != nil {
			return 0, err
		}
		end, ok := parseRange(resp.Header.Get("Range"))
		if resp.StatusCode == http.StatusNoContent && ok {
			if resp.Header.Get("Location") != "" {
				err = u.location(resp)
			}
			u.cut = false
			return end, errors.Join(err, accept(resp, http.StatusNoContent))
		}
		resp.Body.Close()
		u.at = nil
	}
	return 0, u.begin(ctx)
}

// parseRange parses "0-99" or "bytes=0-99", and returns 100. "0-0" means no byte or one: none is right in both cases, as
// the registry refuses a chunk at another place.
func parseRange(s string) (int64, bool) {
	first, last, ok := strings.Cut(strings.TrimPrefix(s, "bytes="), "-")
	end, err := strconv.ParseInt(last, 10, 64)
	if !ok || first != "0" || err != nil || end < 0 || end > oci.MaxBlob {
		return 0, false
	}
	if end == 0 {
		return 0, true
	}
	return end + 1, true
}

// attempt sends the blob, or the rest of it.
func (u *upload) attempt(ctx context.Context) error {
	offset := int64(0)
	if u.at == nil || u.cut {
		at, err := u.resume(ctx)
		if err != nil {
			return err
		}
		offset = at
	}
	watched, w := watch(ctx, u.p.Idle)
	defer w.done()
	body, err := u.c.open(watched, w.meter(u.report))
	if err != nil {
		return err
	}
	defer body.Close()
	sum := &counter{hash: sha256.New()}
	u.cut = true // until the registry has confirmed all of it
	if err := w.explain(watched, u.send(watched, body, sum, offset)); err != nil {
		return err
	}
	return u.finish(ctx, sum)
}

// send sends all bytes after offset: in one request, or in chunks if the registry has some of them.
func (u *upload) send(ctx context.Context, body io.Reader, sum *counter, offset int64) error {
	if n, err := io.CopyN(sum, body, offset); err != nil {
		if errors.Is(err, io.EOF) {
			u.at = nil
			return fmt.Errorf("the registry has more than the %d bytes of the blob: %w", n, io.ErrUnexpectedEOF)
		}
		return err
	}
	rest := readAhead(body, sum)
	defer rest.Close()
	if offset == 0 {
		length := int64(-1)
		if !u.c.made {
			length = u.c.known().Size
		}
		return u.patch(ctx, &once{Reader: rest}, length, "")
	}
	part := make([]byte, chunk)
	for from := offset; ; from += chunk {
		n, err := io.ReadFull(rest, part)
		if n > 0 {
			if err := u.patch(ctx, bytes.NewReader(part[:n]), int64(n), fmt.Sprintf("%d-%d", from, from+int64(n)-1)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// once hides a reader's other methods, so that net/http sends it as it is read.
type once struct{ io.Reader }

func (u *upload) patch(ctx context.Context, body io.Reader, length int64, span string) error {
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	if span != "" {
		header.Set("Content-Range", span)
	}
	if length == 0 {
		body = http.NoBody
	}
	resp, err := u.p.to.do(ctx, http.MethodPatch, u.at, header, body, length)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusCreated {
		return refused(resp)
	}
	err = u.location(resp)
	u.cut = true
	return errors.Join(err, accept(resp, resp.StatusCode))
}

// finish gives the blob its digest.
func (u *upload) finish(ctx context.Context, sum *counter) error {
	d := oci.DigestFrom(sum.hash.Sum(nil))
	if want := u.c.known(); !u.c.made && d != want.Digest {
		return fmt.Errorf("read %s: %w: its content does not match its digest", want.Digest, images.ErrCorrupt)
	}
	ctx, w := watch(ctx, u.p.Idle+time.Duration(sum.n/finishing)*time.Second)
	defer w.done()
	to := *u.at
	query := to.Query()
	query.Set("digest", string(d))
	to.RawQuery = query.Encode()
	resp, err := u.p.to.do(ctx, http.MethodPut, &to, http.Header{"Content-Type": {"application/octet-stream"}}, nil, 0)
	if err == nil {
		err = accept(resp, http.StatusCreated)
	}
	if err != nil {
		// The registry may have the blob although its answer was lost.
		if there, herr := u.p.to.has(ctx, d, u.p.to.path); herr != nil || !there {
			if status, ok := errors.AsType[*statusError](err); ok && status.StatusCode < http.StatusInternalServerError {
				u.at = nil // it has other bytes: from the start
			}
			return w.explain(ctx, err)
		}
	}
	u.at = nil
	u.c.learn(d, sum.n)
	return nil
}

// abandon tells the registry that the upload will not be continued. It need not succeed.
func (u *upload) abandon() {
	if u.at == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if resp, err := u.p.to.do(ctx, http.MethodDelete, u.at, nil, nil, 0); err == nil {
		resp.Body.Close()
	}
}

// report tells how much of the blob was read. The reader of the events bounds their rate.
func (u *upload) report(n int64) {
	u.p.Report(events.Event{Event: events.Layer, State: events.Pushing, Digest: u.c.layer, Bytes: n, Total: u.c.total})
}

// counter hashes and counts what is written.
type counter struct {
	hash hash.Hash
	n    int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.hash.Write(b)
}

// watcher ends a context when nothing was read for a while.
type watcher struct {
	limit time.Duration
	timer *time.Timer
	stop  context.CancelCauseFunc
	last  atomic.Int64 // time of the last report
}

func watch(parent context.Context, limit time.Duration) (context.Context, *watcher) {
	ctx, stop := context.WithCancelCause(parent)
	return ctx, &watcher{limit: limit, stop: stop, timer: time.AfterFunc(limit, func() { stop(errSilent) })}
}

var errSilent = fmt.Errorf("the registry stopped responding: %w", context.DeadlineExceeded)

func (w *watcher) done() {
	w.timer.Stop()
	w.stop(nil)
}

// explain returns why ctx was ended, if that is the reason of err.
func (w *watcher) explain(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// meter returns a function that restarts the timer, and passes the number on now and then.
func (w *watcher) meter(report func(int64)) func(int64) {
	return func(n int64) {
		w.timer.Reset(w.limit)
		const every = int64(50 * time.Millisecond)
		if now := time.Now().UnixNano(); now-w.last.Load() >= every {
			w.last.Store(now)
			report(n)
		}
	}
}
