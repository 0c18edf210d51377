package pull

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"time"
)

var errIdle = errors.New("the registry stopped responding")

// maxPause is the time that the library may sleep between two requests when a registry asks for it:
// one minute, plus a margin.
const maxPause = 90 * time.Second

// idle ends a context when the registry has sent nothing for limit. Its timer runs from a request to
// the first byte of the response, and while a body is read. It does not run while the caller
// processes what it read.
type idle struct {
	limit time.Duration
	timer *time.Timer
	stop  context.CancelCauseFunc
}

// watch returns a context for the requests of one attempt, and its idle timer. The caller must call
// done.
func watch(parent context.Context, limit time.Duration) (context.Context, *idle) {
	ctx, stop := context.WithCancelCause(parent)
	w := &idle{limit: limit, stop: stop}
	w.timer = time.AfterFunc(limit, func() { stop(errIdle) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { w.timer.Reset(limit) },
		GotFirstResponseByte: func() { w.timer.Reset(limit + maxPause) },
	})
	return ctx, w
}

func (w *idle) done() {
	w.timer.Stop()
	w.stop(nil)
}

// explain returns errIdle in place of err if the idle timer ended ctx.
func explain(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errIdle {
		return errIdle
	}
	return err
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
