package engine

import (
	"demesne/runner"
	"demesne/runner/sandbox"
)

// newPool returns the pool of prepared sandboxes. See [sandbox.Sandbox.Prepare] for the steps that it can take without
// an owner.
func (e *Engine) newPool() *sandbox.Pool[*sandbox.Sandbox] {
	return &sandbox.Pool[*sandbox.Sandbox]{
		Max: e.machine.Boot.PoolSize, Load: &e.machine.Load,
		PoolCallbacks: sandbox.PoolCallbacks[*sandbox.Sandbox]{
			Make:    e.prepare,
			Discard: (*sandbox.Sandbox).Abandon,
			Valid:   (*sandbox.Sandbox).Hold,
			Serving: e.goesOn,
			Scarce:  func() bool { return e.machine.Limits.Scarce() },
		},
	}
}

// prepare makes a sandbox whose owner is not known yet.
func (e *Engine) prepare(spec runner.Spec) (*sandbox.Sandbox, error) {
	s := sandbox.New(e.env(), sandbox.NewID(), spec)
	return s, s.Prepare(spec.Egress)
}

// sandboxFor returns a prepared sandbox for an admitted Spec and its whole Egress, or a new sandbox that is yet to
// be made.
func (c *caller) sandboxFor(spec runner.Spec, egress *runner.Egress) *sandbox.Sandbox {
	s := c.e.takePrepared(spec, egress)
	if s == nil {
		s = sandbox.New(c.e.env(), sandbox.NewID(), spec)
	}
	s.Assign(spec, egress, c)
	return s
}

// takePrepared returns a prepared sandbox of the Spec's shape, or nil.
func (e *Engine) takePrepared(spec runner.Spec, egress *runner.Egress) *sandbox.Sandbox {
	shape, rest, ok := sandbox.ShapeOf(spec, egress)
	if !ok || e.machine.Boot.Minimal() {
		return nil
	}
	s, _ := e.pool.Take(shape, rest)
	return s
}
