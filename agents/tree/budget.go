package tree

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errBudget is the cause with which the context of an agent over its budget ends. Its text names the bound.
type errBudget struct{ what string }

func (e *errBudget) Error() string { return "budget: " + e.what }

// overBudget returns the reason if err says that an agent went over its budget.
func overBudget(err error) (reason string, over bool) {
	var e *errBudget
	if !errors.As(err, &e) {
		return "", false
	}
	return e.Error(), true
}

// errTime returns the reason for an agent that took longer than it may.
func errTime(limit time.Duration) error { return &errBudget{"time: " + limit.String()} }

// amount is what requests use. As a bound, a zero field means no bound.
type amount struct {
	cost   float64 // US dollars
	tokens int64
	turns  int // requests
}

func (a amount) plus(b amount) amount {
	return amount{a.cost + b.cost, a.tokens + b.tokens, a.turns + b.turns}
}

func (a amount) minus(b amount) amount {
	return amount{max(0, a.cost-b.cost), a.tokens - b.tokens, a.turns - b.turns}
}

// reaches returns an error for the first bound of limit that a has reached, or nil.
func (a amount) reaches(limit amount) error {
	switch {
	case limit.cost > 0 && a.cost >= limit.cost:
		return &errBudget{fmt.Sprintf("cost: $%.4f of $%.4f", a.cost, limit.cost)}
	case limit.tokens > 0 && a.tokens >= limit.tokens:
		return &errBudget{fmt.Sprintf("tokens: %d of %d", a.tokens, limit.tokens)}
	case limit.turns > 0 && a.turns >= limit.turns:
		return &errBudget{fmt.Sprintf("turns: %d of %d", a.turns, limit.turns)}
	}
	return nil
}

// exceeds reports whether a is over a bound of limit.
func (a amount) exceeds(limit amount) bool {
	return limit.cost > 0 && a.cost > limit.cost || limit.tokens > 0 && a.tokens > limit.tokens || limit.turns > 0 && a.turns > limit.turns
}

// budget bounds the requests of an agent together with all its descendants. What a descendant uses counts against every
// budget above it, so a child can only have less than its parent has left, whatever its own bounds say.
//
// A request is reserved before it is forwarded, and settled when its usage is known. It is refused if a bound is reached
// without it. If a bound could be exceeded together with other requests in flight, it waits for them, one by one: so only
// the last request of all can go over a bound of cost or tokens.
type budget struct {
	above *budget // nil: the first agent's
	limit amount
	end   func(error)

	*ledger // one for all budgets of a tree; its mu protects the rest
	used    amount
	held    amount // reserved
	flying  int    // number of reservations
	largest amount // the most that one request used; zero: none is settled yet
}

// ledger serializes the changes of all budgets of a tree.
type ledger struct {
	mu      sync.Mutex
	changed *sync.Cond // broadcast at each change that may end a wait
}

// newBudget returns a budget below another one, or the first of a tree.
func newBudget(above *budget, limit amount, end func(error)) *budget {
	b := &budget{above: above, limit: limit, end: end}
	if above != nil {
		b.ledger = above.ledger
	} else {
		b.ledger = &ledger{}
		b.changed = sync.NewCond(&b.mu)
	}
	return b
}

// bounds reports whether a budget of the chain has any bound, and whether it has one that requires to know what a request
// uses: its cost, or its tokens.
func (b *budget) bounds() (any, cost, tokens bool) {
	for ; b != nil; b = b.above {
		any = any || b.limit != (amount{})
		cost, tokens = cost || b.limit.cost > 0, tokens || b.limit.tokens > 0
	}
	return any, cost, tokens
}

// reserve reserves what a request uses at most, in each budget of the chain. It may wait for other requests. An error
// says why the request must not be forwarded. It ends the agents whose bound is reached.
func (b *budget) reserve(ctx context.Context, a amount) error {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})()
	b.mu.Lock()
	for ctx.Err() == nil {
		at, why, wait := b.judge(a)
		switch {
		case why != nil:
			b.mu.Unlock()
			at.end(why)
			return why
		case !wait:
			for at := b; at != nil; at = at.above {
				at.held, at.flying = at.held.plus(a), at.flying+1
			}
			b.mu.Unlock()
			return nil
		}
		b.changed.Wait()
	}
	b.mu.Unlock()
	return context.Cause(ctx)
}

// judge decides about a request: the budget that refuses it and why, or whether it waits. mu is held.
func (b *budget) judge(a amount) (at *budget, why error, wait bool) {
	for at := b; at != nil; at = at.above {
		if why := at.used.reaches(at.limit); why != nil {
			if one := at.used.plus(amount{turns: 1}); one.exceeds(amount{turns: at.limit.turns}) {
				why = one.reaches(amount{turns: at.limit.turns})
			}
			return at, why, false
		}
		a := amount{max(a.cost, at.largest.cost), max(a.tokens, at.largest.tokens), a.turns}
		unknown := at.largest == (amount{}) && (at.limit.cost > 0 || at.limit.tokens > 0)
		wait = wait || at.flying > 0 && (unknown || at.used.plus(at.held).plus(a).exceeds(at.limit))
	}
	return nil, nil, wait
}

// settle replaces a reservation by what the request used. It ends each agent whose bound is now exceeded.
func (b *budget) settle(held, used amount) { b.change(held, 1, used) }

// charge adds what a request without a reservation used.
func (b *budget) charge(used amount) { b.change(amount{}, 0, used) }

func (b *budget) change(held amount, flying int, used amount) {
	type over struct {
		at  *budget
		why error
	}
	var all []over
	b.mu.Lock()
	for at := b; at != nil; at = at.above {
		at.held, at.flying = at.held.minus(held), at.flying-flying
		at.used = at.used.plus(used)
		if used != (amount{}) {
			at.largest = amount{max(at.largest.cost, used.cost), max(at.largest.tokens, used.tokens), 1}
		}
		if at.used.exceeds(at.limit) {
			all = append(all, over{at, at.used.reaches(at.limit)})
		}
	}
	b.changed.Broadcast()
	b.mu.Unlock()
	for _, o := range all {
		o.at.end(o.why)
	}
}

// total returns what was used so far, descendants included.
func (b *budget) total() amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
