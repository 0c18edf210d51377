package proxy

import (
	"context"
	"sync"

	"demesne/proxy/policy"
)

// Approver asks somebody outside about a name and a port that no rule is about, and returns when
// there is an answer, or none in time. A yes is a rule that the approver adds by
// SetPolicy before it returns: the policy is then asked again. It is called once at a
// time for each of them. ctx ends with the proxy.
type Approver func(ctx context.Context, name policy.Name, port uint16)

// asking is what an answer is awaited for.
type asking struct {
	mu   sync.Mutex
	open map[asked]chan struct{}
}

// asked is what one question is about: an answer says nothing about other ports.
type asked struct {
	name policy.Name
	port uint16
}

// maxAsking bounds the names that are asked about at once. Somebody inside who makes
// up names would otherwise flood the one who answers.
const maxAsking = 8

// decide gives the policy's answer, after the approver's where the policy has none of its own.
func (p *Proxy) decide(q policy.Query) policy.Decision {
	d := p.policy.Load().Decide(q)
	if !d.Unknown || p.Approve == nil || q.Name.IsZero() || !p.approve(q) {
		return d
	}
	return p.policy.Load().Decide(q)
}

// approve waits until q's name and port were asked about, by this call or another. It says no when
// too many are.
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

// resolves is the policy's answer to whether a name may have an address. Where somebody can
// be asked, a name that no rule speaks of has one, so that the question can be about a
// connection: nothing is sent on for it.
func (p *Proxy) resolves(name policy.Name) policy.Decision {
	d := p.policy.Load().Resolves(name)
	if d.Unknown && p.Approve != nil {
		return policy.Decision{Allowed: true, Unknown: true, Reason: "no rule: asked about when it is connected to"}
	}
	return d
}
