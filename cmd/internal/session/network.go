package session

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"demesne/cmd/internal/session/egress"
	"demesne/mcp/backend"
	"demesne/runner"
)

// fresh is how long the meaning of a mode is good for. It changes when somebody edits the
// configuration of this machine's tools.
const fresh = time.Minute

// network remembers what modes mean, for a program has to be started to find out.
type network struct {
	mu    sync.Mutex
	modes map[string]meaning
}

type meaning struct {
	egress *runner.Egress
	at     time.Time
}

// egress is what a request's words about the network mean to the runner; nil: no network.
func (n *network) egress(ctx context.Context, r backend.Request) (*runner.Egress, error) {
	e, err := n.ruled(ctx, r)
	if err == nil && r.Ask {
		e.Ask = runner.Duration(backend.AskTime)
	}
	return e, err
}

// ruled is the rules of it. With Ask it is never nil: there has to be a gateway to ask at.
func (n *network) ruled(ctx context.Context, r backend.Request) (*runner.Egress, error) {
	if r.Egress == "" || r.Egress == egress.None {
		e, _, err := egress.Find(ctx, egress.Wants{Allow: r.Domains, Gateway: r.Ask}, os.Getenv)
		return e, err
	}
	base, err := n.mode(ctx, r.Egress)
	if err != nil || base == nil {
		return nil, err
	}
	e := *base
	e.Allow = append(slices.Clip(e.Allow), r.Domains...)
	return &e, nil
}

func (n *network) mode(ctx context.Context, name string) (*runner.Egress, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m, ok := n.modes[name]; ok && time.Since(m.at) < fresh {
		return m.egress, nil
	}
	e, _, err := egress.Find(ctx, egress.Wants{Mode: name}, os.Getenv)
	if err != nil {
		return nil, err
	}
	if n.modes == nil {
		n.modes = map[string]meaning{}
	}
	n.modes[name] = meaning{e, time.Now()}
	return e, nil
}
