package engine

import (
	"slices"
	"sync"
	"time"

	"demesne/runner"
)

// spares are those of a runner: some of each shape that was asked for of late, and no more of all
// than most. A shape begins with one. It gets one more each time there was none, while there is
// room; a new one is made room for by that which was not asked for the longest.
type spares struct {
	mu      sync.Mutex
	most    int
	shapes  []*shape // each wants some; the one asked for last is the last
	busy    int      // sandboxes that are being made for somebody
	pending bool     // refill is on its way
	closed  bool

	wanted  time.Time // since when it is
	command time.Time // when the last one was started
}

// shape is what spares of one kind have in common.
type shape struct {
	key  string
	spec runner.Spec
	want int
	list []*spare // never more than want; the oldest first
}

// take returns a spare of the shape, or nil, and one that gave way and is to be retired, or nil.
func (p *spares) take(key string, spec runner.Spec) (sp, unfit *spare) {
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

// grow has sh, which is not in the list, want one more if that may be.
func (p *spares) grow(sh *shape) (unfit *spare) {
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

// shrink has sh want one less, and returns what it has too many of.
func (p *spares) shrink(sh *shape) (unfit *spare) {
	if sh.want--; len(sh.list) > sh.want {
		unfit, sh.list = sh.list[0], sh.list[1:]
	}
	p.settle(sh)
	return unfit
}

// settle forgets a shape that wants nothing.
func (p *spares) settle(sh *shape) {
	if i := slices.Index(p.shapes, sh); i >= 0 && sh.want == 0 {
		p.shapes = slices.Delete(p.shapes, i, i+1)
	}
}

// lacking is the shape that is to have its next spare first, or nil: of those that have too few the
// one asked for last. p.mu is held.
func (p *spares) lacking() *shape {
	for _, sh := range slices.Backward(p.shapes) {
		if len(sh.list) < sh.want {
			return sh
		}
	}
	return nil
}

// raising notes that a sandbox is being made for somebody, until done is called: no spare
// is begun meanwhile.
func (p *spares) raising() (done func()) {
	add := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy += n
	}
	add(1)
	return func() { add(-1) }
}

// commanded notes that a command is being started.
func (p *spares) commanded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command = time.Now()
}

// disturbing says whether to make a spare now would hold somebody up: who waits for a sandbox, or
// has just started a command. p.mu is held.
func (p *spares) disturbing(now time.Time) bool {
	return p.busy > 0 || now.Sub(p.command) < spareDelay && now.Sub(p.wanted) < sparePatience
}

// begin lists a spare that is now to be made, or returns nil.
func (p *spares) begin(e *Engine) *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	sh := p.lacking()
	if p.closed || sh == nil || p.disturbing(time.Now()) || e.host.Scarce() {
		return nil
	}
	s := e.newSandbox(newID(), sh.spec)
	s.spare, s.egress = true, sh.spec.Egress
	sp := &spare{s: s, shape: sh, made: make(chan struct{})}
	sh.list = append(sh.list, sp)
	return sp
}

// finish tells that sp was made, or was not: then no more are made until they are missed.
func (p *spares) finish(sp *spare) {
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

// expire ends a spare that nobody took. They were too many, or none is needed now.
func (p *spares) expire(sp *spare) {
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

// remove says whether sp was there to be removed. p.mu is held.
func (p *spares) remove(sp *spare) bool {
	i := slices.Index(sp.shape.list, sp)
	if i >= 0 {
		sp.shape.list = slices.Delete(sp.shape.list, i, i+1)
	}
	return i >= 0
}

// close ends all spares, and there will be no more.
func (p *spares) close() {
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
