package hosttools

import (
	"context"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// keepaliveToken is the token of signs of life to a client that asked for no progress. Clients drop a silent call.
const keepaliveToken = "demesne-keepalive"

// beat sends the progress of one call. Its numbers increase, whatever the server sends.
type beat struct {
	send func(*sdk.ProgressNotificationParams)

	mu   sync.Mutex
	sent float64
}

// pass passes on the server's own progress.
func (b *beat) pass(p *sdk.ProgressNotificationParams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Progress <= b.sent {
		return
	}
	b.sent = p.Progress
	b.send(&sdk.ProgressNotificationParams{Progress: p.Progress, Total: p.Total, Message: p.Message})
}

// start sends a sign of life early, which opens the response's stream, and then every so often.
func (b *beat) start(ctx context.Context, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTimer(every / 10)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				b.alive()
				t.Reset(every)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (b *beat) alive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent += 1e-6
	b.send(&sdk.ProgressNotificationParams{Progress: b.sent})
}
