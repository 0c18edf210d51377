package sandbox

import "sync"

// Load records what callers of the runner wait for. The zero value is a runner without load. mu guards its field, and
// is taken after the mutex of a [Pool].
type Load struct {
	mu   sync.Mutex
	busy int // sandboxes in the making for a caller
}

// Building records that a sandbox is being built for a caller, until done is called. No sandbox is prepared
// meanwhile.
func (l *Load) Building() (done func()) {
	l.add(1)
	return func() { l.add(-1) }
}

func (l *Load) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy += n
}

// delays reports whether making a prepared sandbox now would delay a caller that waits for a sandbox.
func (l *Load) delays() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy > 0
}
