package main

import (
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
func errTime(most time.Duration) error { return &errBudget{"time: " + most.String()} }

// budget bounds the cost and the requests of an agent together with all its descendants. What a descendant uses counts
// against every budget above it, so a child can only have less than its parent has left, whatever its own bounds say.
type budget struct {
	above   *budget // nil: the first agent's
	maxCost float64 // US dollars; 0: no bound
	maxTurn int     // requests; 0: no bound
	end     func(error)

	mu   sync.Mutex
	cost float64
	turn int
}

// charge counts requests and their cost. It ends each agent whose bound is now exceeded.
func (b *budget) charge(cost float64, turns int) {
	for ; b != nil; b = b.above {
		if err := b.add(cost, turns); err != nil {
			b.end(err)
		}
	}
}

func (b *budget) add(cost float64, turns int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cost, b.turn = b.cost+cost, b.turn+turns
	switch {
	case b.maxCost > 0 && b.cost > b.maxCost:
		return &errBudget{fmt.Sprintf("cost: $%.4f of $%.4f", b.cost, b.maxCost)}
	case b.maxTurn > 0 && b.turn > b.maxTurn:
		return &errBudget{fmt.Sprintf("turns: %d of %d", b.turn, b.maxTurn)}
	}
	return nil
}

// used returns the cost so far, descendants included.
func (b *budget) used() (cost float64, turns int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cost, b.turn
}
