package trees

import (
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
