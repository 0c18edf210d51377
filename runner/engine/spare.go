package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/userns"
	"demesne/runner/wire"
)

// A runner that goes on after a sandbox has ended keeps spares: sandboxes that are made
// in advance as any other is, restricted and verified, of the shape that was asked for
// last. What is open is whose they will be: when one is taken, /out and /workspace are
// mounted in it, its gateway, if it has one, is given to the proxy with what is allowed,
// and only then has it a name, an owner and a receipt. A spare was never anybody else's,
// is used once, is in no list and does not keep the runner alive.
const (
	// spareDelay is how long the end of a sandbox lies back before a spare is made: a
	// caller that came for one command is gone by then, and often the runner with it.
	spareDelay = 10 * time.Millisecond
	// spareAge is how long one waits to be taken. What it has of the host's /etc is as
	// old as it is.
	spareAge = 5 * time.Minute
)

// spares are those of a runner.
type spares struct {
	mu      sync.Mutex
	most    int
	shape   string      // of the last Spec that fits
	spec    runner.Spec // with that shape
	want    int         // how many of it: one more each time there was none
	list    []*spare    // all of that shape, the oldest first
	busy    int         // sandboxes that are being made for somebody
	pending bool        // refill is on its way
	closed  bool
}

// spare is a sandbox made in advance, or being made.
type spare struct {
	s    *sandbox
	made chan struct{} // closed when err is known
	err  error
	aged *time.Timer
}

// shapeOf is all of an admitted Spec that matters before it is known whose a sandbox will
// be; ok is false if no spare can be made for it. It is pure.
func shapeOf(spec runner.Spec, egress *runner.Egress) (shape string, rest runner.Spec, ok bool) {
	if spec.Rootfs != nil || spec.Lifetime != runner.OneShot || spec.Nesting || len(spec.Publish) > 0 || len(spec.Inputs) > 0 {
		return "", spec, false
	}
	rest = spec
	if egress != nil {
		if len(egress.Secrets) > 0 { // whose authority is one of the tree's files
			return "", spec, false
		}
		rest.Egress = &runner.Egress{GoProxy: egress.GoProxy}
	}
	rest.Name, rest.Out, rest.Workspace, rest.Require = "", "", "", ""
	rest.Exposed = false // of files that an image's packages have
	text, err := json.Marshal(rest)
	return string(text), rest, err == nil
}

// sandboxFor is a spare for an admitted Spec and the whole of its Egress or, to be made, a
// new sandbox.
func (c *caller) sandboxFor(spec runner.Spec, egress *runner.Egress) *sandbox {
	s := c.e.takeSpare(spec, egress)
	if s == nil {
		s = c.e.newSandbox(newID(), spec)
	}
	now := time.Now()
	s.spec, s.egress, s.asker, s.created, s.began = spec, egress, c, now, now
	return s
}

// takeSpare returns a spare of the Spec's shape, or nil. One that is being made is waited
// for: it has a lead.
func (e *Engine) takeSpare(spec runner.Spec, egress *runner.Egress) *sandbox {
	shape, rest, ok := shapeOf(spec, egress)
	if !ok || e.boot.Mode == userns.ModeMinimal {
		return nil
	}
	for {
		sp, unfit := e.spares.take(shape, rest)
		for _, other := range unfit {
			go other.retire()
		}
		if sp == nil {
			return nil
		}
		<-sp.made
		if sp.err != nil {
			continue
		}
		select {
		case <-sp.s.guest.Done(): // somebody killed its PID 1
			sp.retire()
		default:
			return sp.s
		}
	}
}

// take returns a spare, or nil, and those that are of another shape.
func (p *spares) take(shape string, spec runner.Spec) (sp *spare, unfit []*spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if shape != p.shape {
		unfit = p.list
		p.shape, p.spec, p.want, p.list = shape, spec, 0, nil
	}
	if len(p.list) == 0 {
		p.want = min(p.want+1, p.most)
		return nil, unfit
	}
	sp = p.list[0]
	p.list = p.list[1:]
	return sp, unfit
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

// refillSoon has spares made, if it then turns out that the runner goes on. Not beside a
// command: that is slower by more than the next one is faster.
func (e *Engine) refillSoon() {
	p := &e.spares
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.pending && len(p.list) < p.want {
		p.pending = true
		time.AfterFunc(spareDelay, e.refill)
	}
}

// refill makes what is wanting, one after the other.
func (e *Engine) refill() {
	p := &e.spares
	for e.goesOn() {
		sp := p.begin(e)
		if sp == nil {
			break
		}
		if sp.err = sp.s.raise(&wire.Message{}, &stages{}); sp.err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: make spare: %v\n", sp.err)
			sp.s.undoSpare()
		}
		p.finish(sp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending = p.busy > 0 && len(p.list) < p.want; p.pending {
		time.AfterFunc(spareDelay, e.refill)
	}
}

// begin lists a spare that is now to be made, or returns nil.
func (p *spares) begin(e *Engine) *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.busy > 0 || len(p.list) >= p.want || e.host.Scarce() {
		return nil
	}
	s := e.newSandbox(newID(), p.spec)
	s.spare, s.egress = true, p.spec.Egress
	sp := &spare{s: s, made: make(chan struct{})}
	p.list = append(p.list, sp)
	return sp
}

// finish tells that sp was made, or was not: then no more are made until they are missed.
func (p *spares) finish(sp *spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sp.err != nil {
		p.remove(sp)
		p.want = 0
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
		p.want = len(p.list)
	}
	p.mu.Unlock()
	if there {
		sp.retire()
	}
}

// remove says whether sp was there to be removed. p.mu is held.
func (p *spares) remove(sp *spare) bool {
	i := slices.Index(p.list, sp)
	if i >= 0 {
		p.list = slices.Delete(p.list, i, i+1)
	}
	return i >= 0
}

// close ends all spares, and there will be no more.
func (p *spares) close() {
	p.mu.Lock()
	list := p.list
	p.list, p.closed = nil, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, sp := range list {
		wg.Go(sp.retire)
	}
	wg.Wait()
}

// retire ends a spare that was taken out of the list and is nobody's.
func (sp *spare) retire() {
	<-sp.made
	if sp.err == nil {
		sp.s.undoSpare()
	}
}

// undoSpare takes down a sandbox that nobody knew of.
func (s *sandbox) undoSpare() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	close(s.built)
	s.undo.run()
	s.late.run()
	close(s.finished)
}

// handOver gives a spare what is its caller's.
func (s *sandbox) handOver(m *wire.Message) error {
	if w := s.net.out; w != nil {
		w.asked = *s.egress
		s.askProxy(w, m)
	}
	admitted, err := s.openNetwork(m)
	if err != nil {
		return err
	}
	if err := s.tree.Complete(source(m, runner.SourceOut, s.spec.Out), source(m, runner.SourceWorkspace, s.spec.Workspace)); err != nil {
		return err
	}
	if err := s.openShared(); err != nil {
		return err
	}
	s.detach()
	return admitted()
}
