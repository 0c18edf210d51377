package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
	"demesne/runner"
)

// receiptMeta is the key of a whole receipt in a result's _meta.
const receiptMeta = "demesne/receipt"

func (c *call) withReceipt(r *sdk.CallToolResult, full *runner.Receipt) *sdk.CallToolResult {
	if full != nil {
		r.Meta = sdk.Meta{receiptMeta: full}
	}
	return r
}

// beat is one call's signs of life. Clients give a silent call up: some after 60 s, some
// after 300 s, whatever its progress was until then.
type beat struct {
	server *Server
	began  time.Time

	mu      sync.Mutex
	req     *sdk.CallToolRequest // whose client they are for; nil: nobody waits just now
	message string
	output  func() (tail string, n int64)
	sent    float64
	pinging bool
}

// watch starts the signs of life of a call and returns what feeds them. stop ends them,
// and waits until none is under way.
func (c *call) watch() (w backend.Watch, stop func()) {
	b := &beat{server: c.Server, req: c.req, began: time.Now()}
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
	w.Output = func(last func() (string, int64)) {
		b.mu.Lock()
		b.output = last
		b.mu.Unlock()
	}
	w.Ask = c.asker()
	return w, func() { cancel(); <-done }
}

// run sends the first sign sooner than the others: over HTTP it is what opens the answer's stream, and a
// client that waits for that is less patient than one that has it.
func (b *beat) run(ctx context.Context, every time.Duration) {
	t := time.NewTimer(every / 10)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			b.send(ctx)
			t.Reset(every)
		}
	}
}

// to has signs of life go to whoever sent req from now on, or with nil to nobody.
func (b *beat) to(req *sdk.CallToolRequest) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.req = req
}

// send tells how the call goes on, or without a progress token that it does. From protocol 2026-07-28 on
// a client that asked for neither progress nor messages (logLevel) hears nothing: that offers no more.
func (b *beat) send(ctx context.Context) {
	b.mu.Lock()
	req := b.req
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
	case req.ProtocolVersion() < severalRounds:
		b.ping(ctx, req)
	default: // there are no pings, but messages for a call that asked for them
		req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Logger: "demesne.call", Data: b.progress().Message})
	}
}

// progress is what there is to tell now.
func (b *beat) progress() *sdk.ProgressNotificationParams {
	b.mu.Lock()
	defer b.mu.Unlock()
	elapsed := time.Since(b.began).Truncate(time.Second)
	message := fmt.Sprintf("%s elapsed", elapsed)
	if b.message != "" {
		message += ": " + b.message
	}
	if b.output != nil {
		if tail, n := b.output(); n > 0 {
			message += fmt.Sprintf(" (%d bytes of output)\n%s", n, harmless(tail))
		}
	}
	// It must grow with each notification, whatever the clock says.
	b.sent = max(b.sent+0.001, elapsed.Seconds())
	return &sdk.ProgressNotificationParams{Progress: b.sent, Message: message}
}

// harmless is output without what a terminal obeys, turns or hides: a client may print a message as it comes. The result has it whole.
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

// pingTime is how long a ping is waited for.
const pingTime = 10 * time.Second

// ping asks the client for a sign of life, which is one of ours too. It is not waited for
// and not taken back: a call that ends meanwhile is answered at once. What ctx knows of the call has
// it sent where that is answered. Over HTTP the end of the client's session waits for it, so that ends it.
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
