package sandbox

import (
	"slices"
	"sync"
)

// cleanup is a stack of cleanup steps, with a lock of its own. Each step of making a sandbox pushes one. They run from
// the top when making fails or when the sandbox ends.
type cleanup struct {
	mu    sync.Mutex
	steps []func()
}

func (c *cleanup) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, f)
}

// last adds a step that runs after all others.
func (c *cleanup) last(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = slices.Insert(c.steps, 0, f)
}

func (c *cleanup) run() {
	c.mu.Lock()
	steps := c.steps
	c.steps = nil
	c.mu.Unlock()
	for _, f := range slices.Backward(steps) {
		f()
	}
}
