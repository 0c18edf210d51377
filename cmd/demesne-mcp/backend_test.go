package main

import (
	"slices"
	"testing"
	"time"

	"demesne/mcp/backend"
	"demesne/runner"
)

// TestTimeout checks that a command without a timeout gets 48 hours, and any other its own timeout.
func TestTimeout(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: 48 * time.Hour, time.Second: time.Second, 72 * time.Hour: 72 * time.Hour} {
		if got := runOptions(backend.Request{Command: "x", Timeout: asked}).Command.Timeout; got != want {
			t.Errorf("%v: %v, want %v", asked, got, want)
		}
	}
}

// TestUnasked checks that arguments that a model left out are defaults of a keyed sandbox.
func TestUnasked(t *testing.T) {
	r := backend.Request{Image: "host", OwnEgress: true, UnaskedLimits: []string{"cpus"}, Spec: runner.Spec{Key: "k"}}
	c, err := createOptions(r)
	if err != nil || !slices.Equal(c.Unasked, []string{"cpus", "image"}) {
		t.Errorf("%q, %v", c.Unasked, err)
	}
}
