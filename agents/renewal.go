package agents

import (
	"context"
	"sync"
	"time"

	"demesne/runner"
	"demesne/session"
)

// Bounds of how often a Renewal looks for a refused credential, and renews one that was refused or could not be renewed.
const (
	lookEvery  = time.Second
	renewAgain = time.Minute
)

// Renewal keeps the credential in the routes of one sandbox valid.
type Renewal struct {
	Agent    *Agent
	Sessions *session.Service
	Sandbox  string
	Refused  func() bool // reports whether the server has refused a request since the last call; nil: it is not asked
	Failed   func(error) // gets the errors of Run; may be nil

	mu sync.Mutex // an agent's Renew is not for concurrent use
}

// Run renews the credential until ctx ends: when it is due, first at next (zero: never), and when the server has refused
// it. A sandbox may cause refusals, so they renew it once a minute at most.
func (r *Renewal) Run(ctx context.Context, next time.Time) {
	var look <-chan time.Time
	if r.Refused != nil {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		look = t.C
	}
	refused, earliest := false, time.Time{}
	for look != nil || !next.IsZero() {
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case now := <-look:
			if refused = r.Refused() || refused; !refused || now.Before(earliest) {
				continue
			}
		}
		at, err := r.Renew(context.WithoutCancel(ctx), refused) // a new token must reach its file
		if next, refused, earliest = at, false, time.Now().Add(renewAgain); err == nil {
			continue
		}
		if next = earliest; r.Failed != nil && ctx.Err() == nil {
			r.Failed(err)
		}
	}
}

// Renew gives the routes the credential as it is now. refused means that the server refused the last one.
func (r *Renewal) Renew(ctx context.Context, refused bool) (next time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if refused {
		r.Agent.Rejected()
	}
	headers, next, err := r.Agent.Renew(ctx)
	if err != nil {
		return next, err
	}
	return next, r.Sessions.With(ctx, func(e session.Engine) error {
		return e.ChangeEgress(ctx, runner.EgressChange{Sandbox: r.Sandbox, Headers: headers})
	})
}
