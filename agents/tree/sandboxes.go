package tree

import (
	"sync"

	"demesne/session"
)

// sandboxes are the sandboxes that an agent created and has not destroyed. The zero value is ready.
type sandboxes struct {
	mu     sync.Mutex
	all    map[string]func() // by id; called when the sandbox is removed
	closed bool              // see removeAll
}

// add returns false after removeAll. The caller then removes the sandbox.
func (b *sandboxes) add(id string, removed func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]func(){}
	}
	if !b.closed {
		b.all[id] = removed
	}
	return !b.closed
}

func (b *sandboxes) has(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[id] != nil
}

// remove forgets a removed sandbox.
func (b *sandboxes) remove(id string) {
	b.mu.Lock()
	removed := b.all[id]
	delete(b.all, id)
	b.mu.Unlock()
	if removed != nil {
		removed()
	}
}

// removeAll removes every sandbox. None can be added afterwards.
func (b *sandboxes) removeAll(s *session.Service) {
	b.mu.Lock()
	b.closed = true
	var ids []string
	for id := range b.all {
		ids = append(ids, id)
	}
	b.mu.Unlock()
	for _, id := range ids {
		s.Discard(id)
		b.remove(id)
	}
}
