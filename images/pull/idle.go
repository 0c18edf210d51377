package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

var (
	errIdle      = errors.New("the registry stopped responding")
	errRedirects = errors.New("the registry redirects in a loop")
)

// manyRequests is more than one attempt needs: a ping, a token, a manifest and a redirect of each. The HTTP client
// follows ten redirects, and its error for the eleventh has no type.
const manyRequests = 10

// maxPause is the time that the library may sleep between two requests when a registry asks for it:
// one minute, plus a margin.
const maxPause = 90 * time.Second

// idle ends a context when the registry has sent nothing for limit. Its timer runs from a request to
// the first byte of the response, and while a body is read. It does not run while the caller
// processes what it read.
type idle struct {
	limit    time.Duration
	timer    *time.Timer
	stop     context.CancelCauseFunc
	requests atomic.Int64
}

// watch returns a context for the requests of one attempt, and its idle timer. The caller must call
// done.
func watch(parent context.Context, limit time.Duration) (context.Context, *idle) {
	ctx, stop := context.WithCancelCause(parent)
	w := &idle{limit: limit, stop: stop}
	w.timer = time.AfterFunc(limit, func() { stop(errIdle) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			w.requests.Add(1)
			w.timer.Reset(limit)
		},
		GotFirstResponseByte: func() { w.timer.Reset(limit + maxPause) },
	})
	return ctx, w
}

func (w *idle) done() {
	w.timer.Stop()
	w.stop(nil)
}

// explain returns the reason for err: why ctx was ended, or a loop of redirects.
func (w *idle) explain(ctx context.Context, err error) error {
	var request *url.Error
	var busy *Error
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case cause == errIdle, errors.As(cause, &busy):
		return cause
	case w.requests.Load() >= manyRequests && errors.As(err, &request) && ctx.Err() == nil && !broken(request.Err):
		return fmt.Errorf("%w: %w", errRedirects, err)
	}
	return err
}

// broken reports whether a request failed in the network.
func broken(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reader returns a reader of r that runs the timer only during a Read.
func (w *idle) reader(r io.Reader) io.Reader { return &idleReader{w, r} }

type idleReader struct {
	*idle
	r io.Reader
}

func (r *idleReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.limit)
	n, err := r.r.Read(p)
	r.timer.Stop()
	return n, err
}
