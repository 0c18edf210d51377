package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/internal/text"
	"demesne/session"
)

// keepaliveToken is the token of the nested server's heartbeats to clients that sent none. Those clients drop a silent
// call, and with it the child.
const keepaliveToken = "demesne-keepalive"

// beat sends the heartbeats of one call. Clients abort a silent call, some after 60 s. Some abort a call after 300 s
// in spite of progress.
type beat struct {
	server *Server
	began  time.Time

	mu       sync.Mutex
	req      *sdk.CallToolRequest // the request to report on; nil: no client is waiting
	stream   *eventStream         // its answer; nil: not over HTTP, or of an earlier protocol
	message  string
	output   func() session.Tail
	moved    func() (files, bytes int64) // of a copy
	fresh    text.Last                   // output that was not sent yet
	streamed int64                       // bytes of all output
	sent     float64
	pinging  bool

	wake chan struct{} // signals fresh output; capacity 1
}

// freshKept bounds the output in one progress message, in bytes.
const freshKept = 8 << 10

// watch starts the heartbeats of a call and returns the callbacks that feed them. stop ends them and waits until no
// heartbeat is being sent.
func (c *call) watch() (w session.Callbacks, stop func()) {
	b := &beat{server: c.Server, req: c.req, stream: streamOf(c.ctx), began: time.Now(), wake: make(chan struct{}, 1)}
	b.fresh.Most = freshKept
	if c.talk != nil {
		c.talk.has(b)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx, c.opts.Heartbeat)
	}()
	w.Progress = func(m string) {
		b.mu.Lock()
		b.message = m
		b.mu.Unlock()
	}
	w.Began = func(last func() session.Tail) {
		b.mu.Lock()
		b.output = last
		b.mu.Unlock()
	}
	w.Moves = func(moved func() (int64, int64)) {
		b.mu.Lock()
		b.moved = moved
		b.mu.Unlock()
	}
	w.Stream = b.take
	w.Ask = c.asker()
	return w, func() { cancel(); <-done }
}

// run sends the first heartbeat early. Over HTTP it opens the response stream, and a client that waits for the stream
// times out sooner.
func (b *beat) run(ctx context.Context, every time.Duration) {
	t := time.NewTimer(every / 10)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake: // more output may follow at once
			select {
			case <-ctx.Done():
				return
			case <-time.After(every / 100):
			}
		case <-t.C:
		}
		b.send(ctx)
		t.Reset(b.pause(every))
	}
}

// take adds output to the next progress message, which follows soon. Without a progress token nothing is sent.
func (b *beat) take(output string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh.Write([]byte(output))
	b.streamed += int64(len(output))
	if b.req == nil || b.req.Params.GetProgressToken() == nil {
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// pause returns the time until the next heartbeat: a tenth for a copy whose client asked for progress, which it shows
// as a bar.
func (b *beat) pause(every time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moved != nil && b.req != nil && b.req.Params.GetProgressToken() != nil {
		return every / 10
	}
	return every
}

// to directs the heartbeats to the client of req; with nil it pauses them.
func (b *beat) to(req *sdk.CallToolRequest, stream *eventStream) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.req, b.stream = req, stream
}

// send reports progress if the client sent a progress token. Otherwise it only shows that the call is alive. From
// protocol 2026-07-28 on, a client that requested neither progress nor messages (logLevel) receives a comment over HTTP,
// and nothing over stdio, because the protocol has no other way.
func (b *beat) send(ctx context.Context) {
	b.mu.Lock()
	req, stream := b.req, b.stream
	b.mu.Unlock()
	if req == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch token := req.Params.GetProgressToken(); {
	case token != nil:
		p := b.progress()
		p.ProgressToken = token
		req.Session.NotifyProgress(ctx, p)
	case b.server.opts.Nested:
		p := b.progress()
		p.ProgressToken = keepaliveToken
		req.Session.NotifyProgress(ctx, p)
	case req.ProtocolVersion() < severalRounds:
		b.ping(ctx, req)
	default: // this protocol has no pings, only messages for calls that requested them
		stream.comment()
		req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Logger: "demesne.call", Data: b.progress().Message})
	}
}

// progress returns the current progress notification.
func (b *beat) progress() *sdk.ProgressNotificationParams {
	b.mu.Lock()
	defer b.mu.Unlock()
	elapsed := time.Since(b.began).Truncate(time.Second)
	message := fmt.Sprintf("%s elapsed", elapsed)
	if b.message != "" {
		message += ": " + b.message
	}
	if b.output != nil {
		if last := b.output(); last.Bytes > 0 {
			message += fmt.Sprintf(" (%d bytes of output)\n%s", last.Bytes, harmless(last.Text))
		}
	}
	if n := b.streamed; n > 0 {
		message += fmt.Sprintf(" (%d bytes of output)\n%s", n, harmless(string(b.fresh.End(freshKept))))
		b.fresh = text.Last{Most: freshKept}
	}
	at := elapsed.Seconds()
	if b.moved != nil {
		files, bytes := b.moved()
		message += fmt.Sprintf(": copied %d bytes, %d files complete", bytes, files)
		at = float64(bytes)
	}
	// Progress must increase with each notification, independent of the clock.
	b.sent = max(b.sent+0.001, at)
	return &sdk.ProgressNotificationParams{Progress: b.sent, Message: message}
}

// harmless removes control characters and other unprintable characters, because a client may print the message to a
// terminal. The result has the complete output.
func harmless(output string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r':
			return '\n'
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, output)
}

// pingTime is the timeout of a ping.
const pingTime = 10 * time.Second

// ping pings the client, which shows it that the server is alive. The ping runs in the background and outlives the
// call, so that it never delays the answer. The values of ctx route it to the stream of the call. Over HTTP, the end
// of a session waits for the ping, so hangUp cancels it.
func (b *beat) ping(ctx context.Context, req *sdk.CallToolRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pinging {
		return
	}
	b.pinging = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTime)
	forget := b.server.ending(req.Session.ID(), &cancel)
	go func() {
		defer forget()
		defer cancel()
		req.Session.Ping(ctx, nil)
		b.mu.Lock()
		b.pinging = false
		b.mu.Unlock()
	}()
}
