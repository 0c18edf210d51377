package trees

import (
	"context"
	"strconv"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/client"
)

// TestTrees checks that a kept process serves the operations of its own sandbox and user alone, and once at a time.
func TestTrees(t *testing.T) {
	var ts Trees
	root := runner.User{}
	one := &kept{Tree: &client.Tree{}, sandbox: "a", own: true, born: time.Now()}
	ts.keep(one)
	for _, other := range []*kept{{sandbox: "b", own: true}, {sandbox: "a", user: root}, {sandbox: "a", user: runner.User{UID: 1}}, {sandbox: "", own: true}} {
		if got := ts.take(other); got != nil {
			t.Errorf("%+v got the process of %+v", other, one)
		}
	}
	two := &kept{Tree: &client.Tree{}, sandbox: "a", user: runner.User{UID: 1, GID: 2}, born: time.Now()}
	ts.keep(two)
	if got := ts.take(&kept{sandbox: "a", user: runner.User{UID: 1}}); got != nil {
		t.Error("another group got the process")
	}
	if got := ts.take(&kept{sandbox: "a", own: true}); got != one {
		t.Errorf("got %+v", got)
	}
	if got := ts.take(&kept{sandbox: "a", own: true}); got != nil {
		t.Error("two operations got one process")
	}
	if got := ts.take(&kept{sandbox: "a", user: runner.User{UID: 1, GID: 2}}); got != two || len(ts.idle) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestManySandboxes checks that agents in many sandboxes at once do not end each other's processes.
func TestManySandboxes(t *testing.T) {
	var ts Trees
	of := func(n int) *kept {
		return &kept{Tree: &client.Tree{}, sandbox: strconv.Itoa(n), own: true, born: time.Now()}
	}
	for n := range 500 {
		ts.keep(of(n))
	}
	for n := range 500 {
		if ts.take(of(n)) == nil {
			t.Fatalf("the process of sandbox %d is not kept", n)
		}
	}
}

// TestWait checks that a sandbox has a bound of operations at once, whose processes serve those that wait, and that the end of a
// request ends its wait.
func TestWait(t *testing.T) {
	var ts Trees
	ctx, cancel := context.WithCancel(t.Context())
	var ends []func()
	for range atOnce {
		end, err := ts.wait(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if end, err := ts.wait(ctx, "b"); err != nil {
		t.Error("another sandbox waits")
	} else {
		end()
	}
	began := make(chan func())
	go func() {
		end, _ := ts.wait(t.Context(), "a")
		began <- end
	}()
	for range 2 {
		ts.keep(&kept{Tree: &client.Tree{}, sandbox: "a", born: time.Now()})
	}
	if len(ts.idle) != 2 {
		t.Errorf("%d processes are kept for those that wait", len(ts.idle))
	}
	ends[0]()
	ends[0] = <-began
	cancel()
	if _, err := ts.wait(ctx, "a"); err == nil {
		t.Error("a wait begins although its request has ended")
	}
	for _, end := range ends {
		end()
	}
	if len(ts.queues) != 0 {
		t.Errorf("queues: %v", ts.queues)
	}
}
