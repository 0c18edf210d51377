package tree

import (
	"context"
	"sync"
	"testing"
	"time"

	"demesne/agents"
	"demesne/runner"
)

// TestGateDrop checks that nothing stays reserved for a request that is dropped while it is decided about. Both calls wait for the lock,
// which goes to them in their order; the pauses only put them there, so that a fault is seen.
func TestGateDrop(t *testing.T) {
	n := &node{tree: &Tree{}, ctx: context.Background(), budget: newBudget(nil, amount{turns: 1}, func(err error) { t.Error(err) })}
	n.asked.meter = agents.NewMeter("messages")
	g := &gate{node: n, held: map[int64]reservation{}, dropped: map[int64]bool{}}
	for i := range int64(3) {
		var both sync.WaitGroup
		g.mu.Lock()
		both.Go(func() { g.drop(i) })
		time.Sleep(3 * time.Millisecond)
		both.Go(func() { g.decide(runner.GateMessage{Number: i, Model: "m"}) })
		for range 2 { // a mutex that was missed keeps to the order
			time.Sleep(3 * time.Millisecond)
			g.mu.Unlock()
			g.mu.Lock()
		}
		time.Sleep(3 * time.Millisecond)
		g.mu.Unlock()
		both.Wait()
		if len(g.held) != 0 || n.budget.flying != 0 {
			t.Fatalf("request %d: %d are held, %d in flight", i, len(g.held), n.budget.flying)
		}
	}
}
