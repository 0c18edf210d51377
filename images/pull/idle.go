package pull

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"time"
)

var errIdle = errors.New("the registry says nothing any more")

// maxPause is how long the library sleeps by itself, between two requests, when a registry asks for
// that: a minute, and some room.
const maxPause = 90 * time.Second

// idle ends a context when nothing was heard from a registry for some time. It runs from a request to
// the first byte of the answer and while a body is read, not while we are busy with what was read.
type idle struct {
	limit time.Duration
	timer *time.Timer
	stop  context.CancelCauseFunc
}

// watch returns a context for requests of one try, and what guards it. The caller calls done.
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

// explain puts the reason why ctx ended in the place of the error that it led to.
func explain(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errIdle {
		return errIdle
	}
	return err
}

// reader reads a body, and lets the timer run only while it does.
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
