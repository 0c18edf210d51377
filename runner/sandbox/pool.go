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
	// near is the longest time between two requests for which the second makes a third one likely. Later, a runner without
	// other callers has ended, with its prepared sandboxes.
	near = runner.DefaultLinger
	// deep is how many prepared sandboxes one caller in a loop has use for: one to take, and those in the making.
	deep = 1 + makers
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
// A pool has a few sandboxes of each recently requested shape, at most Max in all. A sandbox that no caller takes costs as
// much as one that runs a command, and most shapes are requested once or rarely. So a shape starts with one at its second
// request, if that comes soon after the first. It then follows what is requested at once: see sizeOf. A new shape takes its
// room from the least recently requested one. A pool makes two sandboxes at a time, and none while that would delay a
// caller, see [Load].
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
	seen    []request   // of shapes that were requested once, or not soon again; the last requested is the last
	waiting int         // callers that wait for a sandbox in the making
	pending int         // makers that are scheduled or at work
	closed  bool
}

// request is the last request of a shape.
type request struct {
	key string
	at  time.Time
}

// shape holds the prepared sandboxes that have the same properties.
type shape[S any] struct {
	request
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
		p.await(one)
		if one.err != nil {
			continue
		}
		if p.Valid(one.s) {
			return one.s, true
		}
		go p.Discard(one.s)
	}
}

// await waits until one is made.
func (p *Pool[S]) await(one *prepared[S]) {
	if one.isMade() {
		return
	}
	p.mu.Lock()
	p.waiting++
	p.mu.Unlock()
	<-one.made
	p.mu.Lock()
	p.waiting--
	p.mu.Unlock()
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
	var all []*prepared[S]
	p.mu.Lock()
	for _, sh := range p.shapes {
		all = append(all, sh.list...) // finish may still change the list
	}
	p.shapes, p.closed = nil, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() { p.retire(one) })
	}
	wg.Wait()
}

// take returns a prepared sandbox of the shape, or nil. unfit is one that must make room and be retired, or nil.
func (p *Pool[S]) take(key string, spec runner.Spec) (one, unfit *prepared[S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	sh, last := &shape[S]{spec: spec}, time.Time{}
	if i := slices.IndexFunc(p.shapes, func(sh *shape[S]) bool { return sh.key == key }); i >= 0 {
		sh, last = p.shapes[i], p.shapes[i].at
		p.shapes = slices.Delete(p.shapes, i, i+1)
	} else {
		last = p.lastSeen(key)
	}
	sh.request = request{key, now}
	if len(sh.list) > 0 {
		one, sh.list = sh.list[0], sh.list[1:]
	}
	size := sizeOf(demand{
		want: sh.want, left: len(sh.list), ready: one != nil && one.isMade(),
		soon: now.Sub(last) <= near, others: p.waiting + p.Load.building(),
	})
	if sh.want = min(sh.want, size); sh.want < size {
		unfit = p.grow(sh)
	}
	if sh.want > 0 {
		p.shapes = append(p.shapes, sh)
	} else {
		p.see(sh.request)
	}
	return one, unfit
}

// demand is what decides how many sandboxes of a shape are wanted after a request.
type demand struct {
	want   int  // wanted before it
	left   int  // in the pool or in the making, beside the one that the request takes
	ready  bool // the request takes one that is ready
	soon   bool // it comes near the request before
	others int  // callers that wait for a sandbox at the same time
}

// sizeOf returns how many sandboxes of a shape are wanted. A request long after the one before makes none likely, so
// what is left stays and is not replaced. One that found none ready asks for one more, up to what a loop or the callers
// at the same time have use for. One that finds more than that ready asks for one less.
func sizeOf(d demand) int {
	most := max(deep, d.others+1)
	switch {
	case !d.soon:
		return d.left
	case !d.ready && d.want < most:
		return d.want + 1
	case d.ready && d.want > most:
		return max(d.want-1, d.left)
	}
	return d.want
}

// lastSeen returns the time of the last request of a shape that has no sandbox, and forgets it. p.mu is held.
func (p *Pool[S]) lastSeen(key string) (at time.Time) {
	if i := slices.IndexFunc(p.seen, func(r request) bool { return r.key == key }); i >= 0 {
		at = p.seen[i].at
		p.seen = slices.Delete(p.seen, i, i+1)
	}
	return at
}

// see remembers a request of a shape that has no sandbox. p.mu is held.
func (p *Pool[S]) see(r request) {
	p.seen = append(p.seen, r)
	if len(p.seen) > remembered {
		p.seen = slices.Delete(p.seen, 0, 1)
	}
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
