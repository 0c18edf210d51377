package engine

import (
	"slices"
	"sync"
)

// undo is a stack of clean-ups: filled while a sandbox is made, by whoever makes a part of it, and
// run from the top when making it fails, or when it ends.
type undo struct {
	mu    sync.Mutex
	steps []func()
}

func (u *undo) add(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, f)
}

// last adds what is to be undone when all else is.
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
