package sandbox

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"demesne/runner"
)

const (
	// delay is the time between the end of a sandbox and the making of a prepared one. Its caller has left by then.
	delay = 5 * time.Millisecond
	// maxAge is how long a prepared sandbox waits to be taken. Its copies from the host's /etc are equally old.
	maxAge = 5 * time.Minute
	// remembered is how many shapes that were requested once the pool remembers.
	remembered = 16
	// makers is how many prepared sandboxes are made at once. Half of the making of one is waiting: for its PID 1, for
	// the mounts, for the kernel to remove namespaces. A loop of runs would otherwise wait for the only maker.
	makers = 2
)

// PoolCallbacks are the functions of a pool's owner.
type PoolCallbacks[S any] struct {
	Make    func(runner.Spec) (S, error) // prepares a sandbox; on an error nothing is left of it
	Discard func(S)                      // ends a sandbox that no caller has taken
	Valid   func(S) bool                 // holds what a sandbox needs for its owner; false: it may not be given to one
	Serving func() bool                  // reports whether the runner expects to serve another sandbox
	Scarce  func() bool                  // reports whether the machine is short of memory
}

// Pool keeps prepared sandboxes for the next requests, also while a runner lingers after its last sandbox.
//
//	p := sandbox.Pool[S]{Max: n, Load: load, PoolCallbacks: …}
//	p.Refill()              // a sandbox ended, or a persistent one was made: prepare missing ones, soon
//	shape, rest, ok := sandbox.ShapeOf(spec, egress)
//	s, ok := p.Take(shape, rest)
//	defer p.Close()         // discards the rest
//
// The runner creates prepared sandboxes in advance, like any other sandbox, restricted and verified, in the shapes
// that were requested last. Only the owner is left open. When a prepared sandbox is taken, /out and /workspace are
// mounted in it. Its gateway, if any, goes to the proxy with the caller's rules. Only then does it get a name, an
// owner and a receipt. A prepared sandbox never had another owner and is used once. No list shows it, and it does not
// keep the runner alive. A persistent one has its directory in package store, which without a record means nothing to
// anyone.
//
// A pool has a few sandboxes of each recently requested shape, at most Max in all. A shape starts with one at its second
// request: most shapes are requested once, and a sandbox that no caller takes costs as much as one that runs a command. It
// grows by one each time a request finds none that is ready, while the pool has room. A new shape takes its room from the
// least recently requested one. A pool makes two sandboxes at a time, and none while that would delay a caller, see [Load].
//
// The pool knows nothing of sandboxes: callbacks make, check and discard them. They run without the pool's lock.
//
// mu guards the fields after it and the shapes. Set the others before the first call.
type Pool[S any] struct {
	Max  int
	Load *Load
	PoolCallbacks[S]

	mu      sync.Mutex
	shapes  []*shape[S] // each wants at least one; the last requested is the last
	seen    []string    // keys of shapes that were requested once; the last requested is the last
	pending int         // makers that are scheduled or at work
	closed  bool
}

// shape holds the prepared sandboxes that have the same properties.
type shape[S any] struct {
	key  string
	spec runner.Spec
	want int
	list []*prepared[S] // never more than want; the oldest first
}

// prepared is a prepared sandbox, or one in the making.
type prepared[S any] struct {
	shape *shape[S]
	made  chan struct{} // closed when s and err are known
	s     S
	err   error
}

// Take returns a prepared sandbox of the shape, if there is one. It waits for one in the making, which is ahead of a
// new one.
func (p *Pool[S]) Take(shape string, rest runner.Spec) (s S, ok bool) {
	for {
		one, unfit := p.take(shape, rest)
		if unfit != nil {
			go p.retire(unfit)
		}
		if one == nil {
			return s, false
		}
		<-one.made
		if one.err != nil {
			continue
		}
		if p.Valid(one.s) {
			return one.s, true
		}
		go p.Discard(one.s)
	}
}

// Refill schedules the making of prepared sandboxes, for the case that the runner lingers.
func (p *Pool[S]) Refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending < makers && p.lacking() != nil {
		p.pending++
		time.AfterFunc(delay, p.refill)
	}
}

// refill is a maker: it makes the lacking prepared sandboxes, one after the other.
func (p *Pool[S]) refill() {
	for p.Serving() {
		one := p.begin()
		if one == nil {
			break
		}
		if one.s, one.err = p.Make(one.shape.spec); one.err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: prepare sandbox for the pool: %v\n", one.err)
		}
		p.finish(one)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Load.delays() && p.lacking() != nil {
		time.AfterFunc(delay, p.refill)
	} else {
		p.pending--
	}
}

// begin lists a prepared sandbox that is to be made now, or returns nil.
func (p *Pool[S]) begin() *prepared[S] {
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := p.lacking()
	if p.closed || sh == nil || p.Load.delays() || p.Scarce() {
		return nil
	}
	one := &prepared[S]{shape: sh, made: make(chan struct{})}
	sh.list = append(sh.list, one)
	return one
}

// finish records the result of making one. After a failure no more are made until a request misses one.
func (p *Pool[S]) finish(one *prepared[S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.err != nil {
		p.remove(one)
		one.shape.want = len(one.shape.list)
		p.settle(one.shape)
	} else {
		time.AfterFunc(maxAge, func() { p.expire(one) })
	}
	close(one.made)
}

// expire ends a prepared sandbox that was not taken in time, and lowers the shape's demand.
func (p *Pool[S]) expire(one *prepared[S]) {
	p.mu.Lock()
	there := p.remove(one)
	if there {
		one.shape.want = len(one.shape.list)
		p.settle(one.shape)
	}
	p.mu.Unlock()
	if there {
		p.retire(one)
	}
}

// retire ends a prepared sandbox that was taken out of the list and has no owner.
func (p *Pool[S]) retire(one *prepared[S]) {
	<-one.made
	if one.err == nil {
		p.Discard(one.s)
	}
}

// Close ends all prepared sandboxes and stops the pool.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	shapes := p.shapes
	p.shapes, p.closed = nil, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, sh := range shapes {
		for _, one := range sh.list {
			wg.Go(func() { p.retire(one) })
		}
	}
	wg.Wait()
}

// take returns a prepared sandbox of the shape, or nil. unfit is one that must make room and be retired, or nil.
func (p *Pool[S]) take(key string, spec runner.Spec) (one, unfit *prepared[S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := &shape[S]{key: key, spec: spec}
	if i := slices.IndexFunc(p.shapes, func(sh *shape[S]) bool { return sh.key == key }); i >= 0 {
		sh = p.shapes[i]
		p.shapes = slices.Delete(p.shapes, i, i+1)
	} else if p.isFirst(key) {
		return nil, nil
	}
	if len(sh.list) > 0 {
		one, sh.list = sh.list[0], sh.list[1:]
	}
	if one == nil || !one.isMade() {
		unfit = p.grow(sh)
	}
	if sh.want > 0 {
		p.shapes = append(p.shapes, sh)
	}
	return one, unfit
}

// isFirst reports whether the shape was not requested before, and remembers the request. p.mu is held.
func (p *Pool[S]) isFirst(key string) bool {
	i := slices.Index(p.seen, key)
	if i >= 0 {
		p.seen = slices.Delete(p.seen, i, i+1)
		return false
	}
	p.seen = append(p.seen, key)
	if len(p.seen) > remembered {
		p.seen = slices.Delete(p.seen, 0, 1)
	}
	return true
}

// isMade reports whether s and err are known.
func (one *prepared[S]) isMade() bool {
	select {
	case <-one.made:
		return true
	default:
		return false
	}
}

// grow raises sh.want by one if the pool permits it. sh is not in the list.
func (p *Pool[S]) grow(sh *shape[S]) (unfit *prepared[S]) {
	all := sh.want
	for _, other := range p.shapes {
		all += other.want
	}
	switch {
	case all < p.Max:
	case sh.want > 0 || len(p.shapes) == 0:
		return nil
	default:
		unfit = p.shrink(p.shapes[0])
	}
	sh.want++
	return unfit
}

// shrink lowers sh.want by one and returns the surplus sandbox, if any.
func (p *Pool[S]) shrink(sh *shape[S]) (unfit *prepared[S]) {
	if sh.want--; len(sh.list) > sh.want {
		unfit, sh.list = sh.list[0], sh.list[1:]
	}
	p.settle(sh)
	return unfit
}

// settle removes a shape that wants no sandbox.
func (p *Pool[S]) settle(sh *shape[S]) {
	if i := slices.Index(p.shapes, sh); i >= 0 && sh.want == 0 {
		p.shapes = slices.Delete(p.shapes, i, i+1)
	}
}

// lacking returns the last requested of the shapes that have too few sandboxes, or nil. p.mu is held.
func (p *Pool[S]) lacking() *shape[S] {
	for _, sh := range slices.Backward(p.shapes) {
		if len(sh.list) < sh.want {
			return sh
		}
	}
	return nil
}

// remove reports whether one was in the list, and removes it. p.mu is held.
func (p *Pool[S]) remove(one *prepared[S]) bool {
	i := slices.Index(one.shape.list, one)
	if i >= 0 {
		one.shape.list = slices.Delete(one.shape.list, i, i+1)
	}
	return i >= 0
}
