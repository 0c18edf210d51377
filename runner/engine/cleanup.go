package engine

import (
	"slices"
	"sync"
)

// undo is a stack of cleanup steps. Each step of making a sandbox pushes one. They run from the top when making
// fails or when the sandbox ends.
type undo struct {
	mu    sync.Mutex
	steps []func()
}

func (u *undo) add(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, f)
}

// last adds a step that runs after all others.
func (u *undo) last(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = slices.Insert(u.steps, 0, f)
}

func (u *undo) run() {
	u.mu.Lock()
	steps := u.steps
	u.steps = nil
	u.mu.Unlock()
	for _, f := range slices.Backward(steps) {
		f()
	}
}
