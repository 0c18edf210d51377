package operate

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// readiness is the last answer. Anyone may ask, so one check answers all questions of a second.
type readiness struct {
	mu     sync.Mutex
	at     time.Time
	checks map[string]string
	ok     bool
}

const readyFor = time.Second

// serveReady answers whether the server can make sandboxes and record what they do. It gives no reasons: those are in the
// server's messages.
func (op *Operator) serveReady(w http.ResponseWriter, _ *http.Request) {
	checks, ok := op.check()
	status, word := http.StatusOK, "ready"
	if !ok {
		status, word = http.StatusServiceUnavailable, "not ready"
	}
	answer(w, status, struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}{word, checks})
}

func (op *Operator) check() (map[string]string, bool) {
	r := &op.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < readyFor {
		return r.checks, r.ok
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	_, runner := op.opts.Sandboxes(ctx)
	was := r.ok || r.at.IsZero()
	r.checks, r.ok = map[string]string{}, true
	for name, err := range map[string]error{"runner": runner, "audit": op.failure()} {
		if r.checks[name] = "ok"; err != nil {
			r.checks[name], r.ok = "failed", false
			if was {
				op.opts.Log.Printf("not ready: %s: %v", name, err)
			}
		}
	}
	r.at = time.Now()
	return r.checks, r.ok
}
