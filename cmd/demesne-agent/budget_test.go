package main

import (
	"testing"
	"time"
)

// TestBudget checks that a charge counts for all budgets above, and ends exactly the agents whose bound it exceeds.
func TestBudget(t *testing.T) {
	ended := map[string]string{}
	make := func(name string, above *budget, cost float64, turns int) *budget {
		return &budget{above: above, maxCost: cost, maxTurn: turns, end: func(err error) { ended[name], _ = overBudget(err) }}
	}
	root := make("root", nil, 1, 0)
	child := make("child", root, 0, 2)
	greedy := make("greedy", root, 100, 0) // more than its parent has
	child.charge(0.25, 2)
	if len(ended) != 0 {
		t.Errorf("at the bound: %v", ended)
	}
	child.charge(0.25, 1)
	if len(ended) != 1 || ended["child"] != "budget: turns: 3 of 2" {
		t.Errorf("over the child's: %v", ended)
	}
	greedy.charge(0.75, 1)
	if len(ended) != 2 || ended["root"] != "budget: cost: $1.2500 of $1.0000" {
		t.Errorf("over the root's: %v", ended)
	}
	if cost, turns := root.used(); cost != 1.25 || turns != 4 {
		t.Errorf("used %v, %v", cost, turns)
	}
	if reason, over := overBudget(errTime(time.Minute)); !over || reason != "budget: time: 1m0s" {
		t.Error(reason)
	}
}
