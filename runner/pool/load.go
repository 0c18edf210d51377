package pool

import (
	"sync"
	"time"
)

const (
	// delay is the time between the end of a sandbox, or the start of any command, and the making of a prepared
	// sandbox. A caller that came for one command has left by then, often together with the runner. A caller that
	// runs several commands keeps a processor to itself.
	delay = 25 * time.Millisecond
	// patience bounds the wait for commands, which may start all the time.
	patience = time.Second
)

// Load records what callers of the runner wait for. The zero value is a runner without load. mu guards its fields,
// and is taken after the mutex of a [Pool].
type Load struct {
	mu      sync.Mutex
	busy    int       // sandboxes in the making for a caller
	command time.Time // start of the last one
}

// Building records that a sandbox is being built for a caller, until done is called. No sandbox is prepared
// meanwhile.
func (l *Load) Building() (done func()) {
	add := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.busy += n
	}
	add(1)
	return func() { add(-1) }
}

// Commanded records that a command is being started.
func (l *Load) Commanded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.command = time.Now()
}

// delays reports whether making a prepared sandbox now would delay a caller: one that waits for a sandbox or has just
// started a command. wanted is the time since when sandboxes lack.
func (l *Load) delays(now, wanted time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy > 0 || now.Sub(l.command) < delay && now.Sub(wanted) < patience
}
