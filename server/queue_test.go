package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"demesne/client"
)

func in(namespace string) context.Context {
	return WithCaller(context.Background(), InNamespace(namespace))
}

// TestQueue checks the order of commands: a namespace with many of them does not keep others waiting.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full []string
		q := &Queue{Running: 2, Waiting: 3, Full: func(ctx context.Context, ahead int, refused bool) {
			full = append(full, fmt.Sprint(CallerOf(ctx).Namespace, ahead, " ", refused))
		}}
		var mu sync.Mutex
		var order []string
		dones := map[string]func(){}
		start := func(ns, name string) {
			go func() {
				done, err := q.Acquire(in(ns))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name += " " + err.Error()
				}
				order, dones[name] = append(order, name), done
			}()
			synctest.Wait()
		}
		for _, name := range []string{"a1", "a2", "a3", "a4", "a5", "a6"} {
			start("a", name)
		}
		start("b", "b1")
		if got := fmt.Sprint(order); got != "[a1 a2 a6 the queue is full: too many commands wait]" {
			t.Errorf("at first: %s", got)
		}
		if st := q.State(WithCaller(t.Context(), InNamespace("a"))); st != (client.Queue{Running: 2, Waiting: 3, MaxRunning: 2, MaxWaiting: 3}) {
			t.Errorf("state: %+v", st)
		}
		if st := q.State(WithCaller(t.Context(), Operator)); st != (client.Queue{Running: 2, Waiting: 4, MaxRunning: 2, MaxWaiting: 3}) {
			t.Errorf("the operator's state: %+v", st)
		}
		order = nil
		done := dones["a1"]
		done()
		done() // once more has no effect
		synctest.Wait()
		dones["a2"]()
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[b1 a3]" {
			t.Errorf("then: %s", got)
		}
		for _, name := range []string{"a3", "b1", "a4", "a5"} {
			dones[name]()
			synctest.Wait()
		}
		if st := q.State(WithCaller(t.Context(), Operator)); st.Running != 0 || st.Waiting != 0 {
			t.Errorf("at the end: %+v", st)
		}
		if got := fmt.Sprint(full); got != "[a0 false a1 false a2 false a3 true b0 false]" {
			t.Errorf("reports: %s", got)
		}
	})
}

func TestQueueBounds(t *testing.T) {
	var none *Queue
	if done, err := none.Acquire(in("a")); err != nil {
		t.Error(err)
	} else {
		done()
	}
	q := &Queue{Waiting: 100, Of: func(ns string) int { return map[string]int{"a": 1}[ns] }}
	one, err := q.Acquire(in("a"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(in("a"))
	cancel()
	if _, err := q.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a disconnected caller: %v", err)
	}
	if done, err := q.Acquire(in("b")); err != nil {
		t.Errorf("a namespace without a bound: %v", err)
	} else {
		done()
	}
	one()
	var now, most atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			done, err := q.Acquire(in("a"))
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			most.Store(max(most.Load(), now.Add(1)))
			now.Add(-1)
		})
	}
	all.Wait()
	if most.Load() != 1 || q.State(WithCaller(t.Context(), Operator)).Running != 0 {
		t.Errorf("%d at once, %+v", most.Load(), q.State(WithCaller(t.Context(), Operator)))
	}
}
