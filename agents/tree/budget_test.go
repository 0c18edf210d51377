package tree

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// ends notes how budgets end.
type ends map[string]string

func (e ends) budget(name string, above *budget, limit amount) *budget {
	return newBudget(above, limit, func(err error) { e[name], _ = overBudget(err) })
}

// TestBudget checks that a charge counts for all budgets above, and ends exactly the agents whose bound it exceeds.
func TestBudget(t *testing.T) {
	ended := ends{}
	root := ended.budget("root", nil, amount{cost: 1})
	child := ended.budget("child", root, amount{turns: 2})
	greedy := ended.budget("greedy", root, amount{cost: 100}) // more than its parent has
	child.charge(amount{cost: 0.25, turns: 2})
	if len(ended) != 0 {
		t.Errorf("at the bound: %v", ended)
	}
	child.charge(amount{cost: 0.25, turns: 1})
	if len(ended) != 1 || ended["child"] != "budget: turns: 3 of 2" {
		t.Errorf("over the child's: %v", ended)
	}
	greedy.charge(amount{cost: 0.75, turns: 1})
	if len(ended) != 2 || ended["root"] != "budget: cost: $1.2500 of $1.0000" {
		t.Errorf("over the root's: %v", ended)
	}
	if got := root.total(); got != (amount{cost: 1.25, turns: 4}) {
		t.Errorf("used %v", got)
	}
	if reason, over := overBudget(errTime(time.Minute)); !over || reason != "budget: time: 1m0s" {
		t.Error(reason)
	}
}

// TestBudgetReserve checks that requests in flight count: those beyond a bound are refused or wait, in each order.
func TestBudgetReserve(t *testing.T) {
	one := amount{turns: 1}
	for _, c := range []struct {
		name       string
		limit      amount
		used, held []amount
		want       amount
		end        string // reason; empty: no end
		wait       bool
	}{
		{"no bound", amount{}, []amount{{9, 9, 9}}, []amount{{9, 9, 9}}, one, "", false},
		{"turns are left", amount{turns: 3}, []amount{one}, []amount{one}, one, "", false},
		{"turns may be left", amount{turns: 3}, []amount{one, one}, []amount{one}, one, "", true},
		{"no turn is left", amount{turns: 3}, []amount{one, one, one}, nil, one, "budget: turns: 4 of 3", false},
		{"the first of all is alone", amount{cost: 1}, nil, []amount{{0.1, 1, 1}}, amount{0.1, 1, 1}, "", true},
		{"a first one may be large", amount{cost: 1}, nil, nil, amount{cost: 50, turns: 1}, "", false},
		{"cost is left", amount{cost: 1}, []amount{{0.1, 1, 1}}, []amount{{0.3, 1, 1}}, amount{0.3, 1, 1}, "", false},
		{"cost may be left", amount{cost: 1}, []amount{{0.1, 1, 1}}, []amount{{0.3, 1, 1}}, amount{0.7, 1, 1}, "", true},
		{"as large as one before", amount{cost: 1}, []amount{{0.45, 1, 1}}, []amount{{0.3, 1, 1}}, amount{0.01, 1, 1}, "", true},
		{"no cost is left", amount{cost: 1}, []amount{{1, 1, 1}}, nil, amount{0.01, 1, 1}, "budget: cost: $1.0000 of $1.0000", false},
		{"tokens may be left", amount{tokens: 100}, []amount{{0, 10, 1}}, []amount{{0, 50, 1}}, amount{0, 41, 1}, "", true},
		{"no token is left", amount{tokens: 100}, []amount{{0, 100, 1}}, nil, one, "budget: tokens: 100 of 100", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := ends{}
			root := ended.budget("root", nil, c.limit)
			for _, u := range c.used {
				root.charge(u)
			}
			ctx, cancel := context.WithCancel(t.Context())
			for _, h := range c.held {
				if err := root.reserve(ctx, h); err != nil {
					t.Fatal(err)
				}
			}
			b := ended.budget("child", root, amount{}) // without a bound of its own
			root.mu.Lock()
			_, why, wait := b.judge(c.want)
			root.mu.Unlock()
			if wait != c.wait || (why != nil) != (c.end != "") {
				t.Fatalf("judged %v, waits: %v", why, wait)
			}
			if wait {
				cancel()
			}
			err := b.reserve(ctx, c.want)
			cancel()
			switch {
			case wait && !errors.Is(err, context.Canceled):
				t.Errorf("it did not wait: %v", err)
			case !wait && (err != nil) != (c.end != ""):
				t.Error(err)
			case c.end != "" && (ended["root"] != c.end || !strings.Contains(c.end, err.Error())):
				t.Errorf("%v, %v", ended, err)
			}
		})
	}
}

// TestBudgetMany checks that of many requests at once no more are in flight than a bound has left, that requests that were not
// forwarded cost nothing, and that a wait ends when a request is settled.
func TestBudgetMany(t *testing.T) {
	ended := make(chan string, 100)
	b := newBudget(nil, amount{turns: 3}, func(err error) { ended <- err.Error() })
	in, out := make(chan error), make(chan struct{})
	for range 12 {
		go func() {
			err := b.reserve(t.Context(), amount{turns: 1})
			in <- err
			if err == nil {
				<-out
				b.settle(amount{turns: 1}, amount{turns: 1})
			}
		}()
	}
	for range 3 {
		if err := <-in; err != nil {
			t.Fatal(err)
		}
	}
	close(out)
	for range 9 {
		if err := <-in; err == nil {
			t.Error("a fourth request")
		}
	}
	if why := <-ended; why != "budget: turns: 4 of 3" {
		t.Error(why)
	}
	b = newBudget(nil, amount{turns: 1}, func(error) { t.Error("it ended") })
	for range 5 { // the server refuses four, and the last one is dropped
		if err := b.reserve(t.Context(), amount{turns: 1}); err != nil {
			t.Fatal(err)
		}
		b.settle(amount{turns: 1}, amount{})
	}
	if got := b.total(); got != (amount{}) || b.held != (amount{}) || b.flying != 0 {
		t.Errorf("%+v", b)
	}
}
