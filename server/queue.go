package server

import (
	"context"
	"slices"
	"sync"

	"demesne/client"
	"demesne/session"
)

// Queue bounds the commands that run at once. Others wait, and one that would wait beyond the bound is refused. A free
// place goes to the namespace with the fewest running commands, and there to the command that waits for longest. The zero
// value bounds nothing. Its bounds do not change.
type Queue struct {
	Running int // commands of all namespaces; 0: no bound
	Waiting int // commands of each namespace
	// Of returns how many commands of a namespace may run; 0: no bound of its own. nil: none has one.
	Of func(namespace string) int
	// Shut returns why no command may start now, such as that its events would have no entry in the audit log. nil: one may.
	Shut func() error
	// Full is called when a command has to wait (ahead is how many wait before it) or is refused.
	Full func(ctx context.Context, ahead int, refused bool)

	mu      sync.Mutex
	running map[string]int // by namespace
	total   int
	waiting []*waiter // in order of arrival
}

type waiter struct {
	namespace string
	turn      chan struct{} // closed when it may run
}

// Acquire waits for a place for a command of ctx's caller. The caller calls done after the command's end. A nil Queue has
// no bound.
func (q *Queue) Acquire(ctx context.Context) (done func(), err error) {
	if err := q.Closed(); err != nil || q == nil {
		return func() {}, err
	}
	ns := CallerOf(ctx).Namespace
	w, ahead, err := q.enter(ns)
	if q.Full != nil && (err != nil || w != nil) {
		q.Full(ctx, ahead, err != nil)
	}
	if err != nil {
		return nil, err
	}
	done = sync.OnceFunc(func() { q.leave(ns) })
	if w == nil {
		return done, nil
	}
	select {
	case <-w.turn:
		if err := q.Closed(); err != nil {
			done()
			return nil, err
		}
		return done, nil
	case <-ctx.Done():
	}
	if !q.withdraw(w) {
		done() // its turn came meanwhile
	}
	return nil, context.Cause(ctx)
}

// Closed returns why nothing may start now, or nil.
func (q *Queue) Closed() error {
	if q == nil || q.Shut == nil {
		return nil
	}
	return q.Shut()
}

// enter takes a place, or returns a waiter.
func (q *Queue) enter(ns string) (w *waiter, ahead int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running == nil {
		q.running = map[string]int{}
	}
	mine := 0
	for _, o := range q.waiting {
		if o.namespace == ns {
			mine++
		}
	}
	switch {
	case mine == 0 && q.fits(ns):
		q.take(ns)
		return nil, 0, nil
	case mine >= q.Waiting:
		return nil, mine, session.ErrQueueFull
	}
	w = &waiter{ns, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	return w, mine, nil
}

// fits reports whether a command of a namespace can run now. mu is held.
func (q *Queue) fits(ns string) bool {
	if q.Running > 0 && q.total >= q.Running {
		return false
	}
	if q.Of == nil {
		return true
	}
	most := q.Of(ns)
	return most <= 0 || q.running[ns] < most
}

func (q *Queue) take(ns string) { q.running[ns]++; q.total++ }

// leave frees a place, and gives it to the command whose turn it is.
func (q *Queue) leave(ns string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total--
	if q.running[ns]--; q.running[ns] == 0 {
		delete(q.running, ns)
	}
	var next *waiter
	for _, w := range q.waiting {
		if q.fits(w.namespace) && (next == nil || q.running[w.namespace] < q.running[next.namespace]) {
			next = w
		}
	}
	if next != nil {
		q.remove(next)
		q.take(next.namespace)
		close(next.turn)
	}
}

// withdraw removes a waiter. It returns false if its turn has come.
func (q *Queue) withdraw(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.remove(w)
}

func (q *Queue) remove(w *waiter) bool {
	at := slices.Index(q.waiting, w)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return at >= 0
}

// State returns what ctx's caller may know: for the operator all commands, for others their namespace's.
func (q *Queue) State(ctx context.Context) client.Queue {
	if q == nil {
		return client.Queue{}
	}
	c := CallerOf(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	st := client.Queue{Running: q.total, Waiting: len(q.waiting), MaxRunning: q.Running, MaxWaiting: q.Waiting}
	if c.Namespace == "" {
		return st
	}
	st.Running, st.Waiting = q.running[c.Namespace], 0
	for _, w := range q.waiting {
		if w.namespace == c.Namespace {
			st.Waiting++
		}
	}
	if q.Of != nil {
		if n := q.Of(c.Namespace); n > 0 && (q.Running == 0 || n < q.Running) {
			st.MaxRunning = n
		}
	}
	return st
}
