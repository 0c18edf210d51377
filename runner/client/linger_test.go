package client

import (
	"testing"

	"demesne/runner"
)

// TestLive checks that a runner's own sandboxes are counted, also paused ones, and not other runners'.
func TestLive(t *testing.T) {
	if n := live([]runner.Info{
		{State: runner.Running, PID: 7}, {State: runner.Paused, PID: 8}, {State: runner.Running}, {State: runner.Stopped}, {State: runner.Snapshot},
	}); n != 2 {
		t.Errorf("%d", n)
	}
}
