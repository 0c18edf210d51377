package sandbox

import (
	"sync"

	"demesne/runner/ipc"
)

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

// building returns the number of sandboxes in the making for callers.
func (l *Load) building() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// delays reports whether making a prepared sandbox now would delay a caller that waits for a sandbox.
func (l *Load) delays() bool { return l.building() > 0 }

// turns limits how many sandboxes are built for callers at once: to one per processor, plus one for when the others wait
// in the kernel. 100 simultaneous requests then take a tenth less processor time than without the limit, and the first
// does not wait for the last. The order is first come, first served. It has a token for each turn that is taken.
type turns chan struct{}

// take waits for a turn, until done ends it. It returns an error, and takes none, if the caller leaves first.
func (t turns) take(left <-chan struct{}) (done func(), err error) {
	select {
	case <-left: // also if a turn is free
		return nil, ipc.ErrClosed
	default:
	}
	select {
	case <-left:
		return nil, ipc.ErrClosed
	case t <- struct{}{}:
		return func() { <-t }, nil
	}
}
