package engine

import (
	"slices"
	"sync"
	"time"

	"demesne/runner"
)

// pool is the pool of a runner: a few prepared sandboxes of each recently requested shape, at most spares.most in
// all. A shape starts with one. It grows by one each time a request finds none, while the pool has room. A new
// shape takes its room from the least recently requested one.
type pool struct {
	mu      sync.Mutex
	most    int
	shapes  []*shape // each wants at least one; the last requested is the last
	busy    int      // sandboxes in the making for a caller
	pending bool     // refill is scheduled
	closed  bool

	wanted  time.Time // when pending was set
	command time.Time // start of the last one
}

// shape is the common properties of prepared sandboxes of one kind.
type shape struct {
	key  string
	spec runner.Spec
	want int
	list []*prepared // never more than want; the oldest first
}

// take returns a prepared sandbox of the shape, or nil. unfit is one that must make room and be retired, or nil.
func (p *pool) take(key string, spec runner.Spec) (sp, unfit *prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := &shape{key: key, spec: spec}
	if i := slices.IndexFunc(p.shapes, func(sh *shape) bool { return sh.key == key }); i >= 0 {
		sh = p.shapes[i]
		p.shapes = slices.Delete(p.shapes, i, i+1)
	}
	if len(sh.list) > 0 {
		sp, sh.list = sh.list[0], sh.list[1:]
	} else {
		unfit = p.grow(sh)
	}
	if sh.want > 0 {
		p.shapes = append(p.shapes, sh)
	}
	return sp, unfit
}

// grow raises sh.want by one if the pool permits it. sh is not in the list.
func (p *pool) grow(sh *shape) (unfit *prepared) {
	all := sh.want
	for _, other := range p.shapes {
		all += other.want
	}
	switch {
	case all < p.most:
	case sh.want > 0 || len(p.shapes) == 0:
		return nil
	default:
		unfit = p.shrink(p.shapes[0])
	}
	sh.want++
	return unfit
}

// shrink lowers sh.want by one and returns the surplus sandbox, if any.
func (p *pool) shrink(sh *shape) (unfit *prepared) {
	if sh.want--; len(sh.list) > sh.want {
		unfit, sh.list = sh.list[0], sh.list[1:]
	}
	p.settle(sh)
	return unfit
}

// settle removes a shape that wants no sandbox.
func (p *pool) settle(sh *shape) {
	if i := slices.Index(p.shapes, sh); i >= 0 && sh.want == 0 {
		p.shapes = slices.Delete(p.shapes, i, i+1)
	}
}

// lacking returns the last requested of the shapes that have too few sandboxes, or nil. p.mu is held.
func (p *pool) lacking() *shape {
	for _, sh := range slices.Backward(p.shapes) {
		if len(sh.list) < sh.want {
			return sh
		}
	}
	return nil
}

// raising records that a sandbox is being built for a caller, until done is called. No prepared sandbox is begun
// meanwhile.
func (p *pool) raising() (done func()) {
	add := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy += n
	}
	add(1)
	return func() { add(-1) }
}

// commanded records that a command is being started.
func (p *pool) commanded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command = time.Now()
}

// disturbing reports whether making a prepared sandbox now would delay a caller: one that waits for a sandbox or
// has just started a command. p.mu is held.
func (p *pool) disturbing(now time.Time) bool {
	return p.busy > 0 || now.Sub(p.command) < spareDelay && now.Sub(p.wanted) < sparePatience
}

// begin lists a prepared sandbox that is to be made now, or returns nil.
func (p *pool) begin(e *Engine) *prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := p.lacking()
	if p.closed || sh == nil || p.disturbing(time.Now()) || e.host.Scarce() {
		return nil
	}
	s := e.newSandbox(newID(), sh.spec)
	s.spare, s.egress = true, sh.spec.Egress
	sp := &prepared{s: s, shape: sh, made: make(chan struct{})}
	sh.list = append(sh.list, sp)
	return sp
}

// finish records the result of making sp. After a failure no more are made until a request misses one.
func (p *pool) finish(sp *prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sp.err != nil {
		p.remove(sp)
		sp.shape.want = len(sp.shape.list)
		p.settle(sp.shape)
	} else {
		time.AfterFunc(spareAge, func() { p.expire(sp) })
	}
	close(sp.made)
}

// expire ends a prepared sandbox that was not taken in time, and lowers the shape's demand.
func (p *pool) expire(sp *prepared) {
	p.mu.Lock()
	there := p.remove(sp)
	if there {
		sp.shape.want = len(sp.shape.list)
		p.settle(sp.shape)
	}
	p.mu.Unlock()
	if there {
		sp.retire()
	}
}

// remove reports whether sp was in the list, and removes it. p.mu is held.
func (p *pool) remove(sp *prepared) bool {
	i := slices.Index(sp.shape.list, sp)
	if i >= 0 {
		sp.shape.list = slices.Delete(sp.shape.list, i, i+1)
	}
	return i >= 0
}

// close ends all prepared sandboxes and stops the pool.
func (p *pool) close() {
	p.mu.Lock()
	shapes := p.shapes
	p.shapes, p.closed = nil, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, sh := range shapes {
		for _, sp := range sh.list {
			wg.Go(sp.retire)
		}
	}
	wg.Wait()
}
