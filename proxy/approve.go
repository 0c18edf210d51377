package proxy

import (
	"context"
	"sync"

	"demesne/proxy/policy"
)

// Approver asks a person outside the sandbox about a name and a port that no rule covers. It returns on an answer
// or a timeout. To approve, it adds a rule with SetPolicy before it returns; the proxy then decides again. The
// proxy makes at most one call at a time for each name and port. ctx ends with the proxy.
type Approver func(ctx context.Context, name policy.Name, port uint16)

// asking holds the questions that await an answer.
type asking struct {
	mu   sync.Mutex
	open map[asked]chan struct{}
}

// asked is the subject of one question. An answer does not apply to other ports.
type asked struct {
	name policy.Name
	port uint16
}

// maxAsking bounds the open questions, so that a sandbox that makes up names cannot flood the person who answers.
const maxAsking = 8

// decide returns the policy's decision. If no rule covers q, it first asks the approver.
func (p *Proxy) decide(q policy.Query) policy.Decision {
	if d, ok := p.member(q); ok {
		return d
	}
	d := p.policy.Load().Decide(q)
	if !d.Unknown || p.Approve == nil || q.Name.IsZero() || !p.approve(q) {
		return d
	}
	return p.policy.Load().Decide(q)
}

// approve waits until the approver was asked about q's name and port, by this call or another. It returns false
// when maxAsking questions are open.
func (p *Proxy) approve(q policy.Query) bool {
	a := &p.asking
	a.mu.Lock()
	about := asked{q.Name, q.Port}
	done, waits := a.open[about]
	if !waits {
		if len(a.open) >= maxAsking {
			a.mu.Unlock()
			return false
		}
		done = make(chan struct{})
		if a.open == nil {
			a.open = map[asked]chan struct{}{}
		}
		a.open[about] = done
	}
	a.mu.Unlock()
	if waits {
		select {
		case <-done:
		case <-p.ctx.Done():
		}
		return true
	}
	defer func() {
		a.mu.Lock()
		delete(a.open, about)
		a.mu.Unlock()
		close(done)
	}()
	p.Approve(p.ctx, q.Name, q.Port)
	return true
}

// resolves decides whether a name may have an address. With an approver, a name that no rule covers gets one, so
// that the question can be about a connection. No query is forwarded for such a name.
func (p *Proxy) resolves(name policy.Name) policy.Decision {
	if d, ok := p.member(policy.Query{Name: name}); ok {
		return d
	}
	d := p.policy.Load().Resolves(name)
	if d.Unknown && p.Approve != nil {
		return policy.Decision{Allowed: true, Unknown: true, Reason: "no rule: asked when a connection opens"}
	}
	return d
}
