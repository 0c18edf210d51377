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

// fresh is how long the cached rules of a mode are valid. They change when the configuration of this machine's
// tools is edited.
const fresh = time.Minute

// network caches the rules of modes, because resolving a mode starts a program.
type network struct {
	mu    sync.Mutex
	modes map[string]meaning
}

type meaning struct {
	egress *runner.Egress
	at     time.Time
}

// egress returns the runner's egress settings for a request; nil: no network.
func (n *network) egress(ctx context.Context, r backend.Request) (*runner.Egress, error) {
	e, err := n.ruled(ctx, r)
	if err == nil && r.Ask {
		e.Ask = runner.Duration(backend.AskTime)
	}
	return e, err
}

// ruled returns the rules for a request. With r.Ask it never returns nil, because a question needs a gateway.
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
