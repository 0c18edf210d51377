package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// A runner that goes on after a sandbox has ended keeps spares: sandboxes that are made
// in advance as any other is, restricted and verified, of the shapes that were asked for
// last. What is open is whose they will be: when one is taken, /out and /workspace are
// mounted in it, its gateway, if it has one, is given to the proxy with what is allowed,
// and only then has it a name, an owner and a receipt. A spare was never anybody else's,
// is used once, is in no list and does not keep the runner alive.
//
// Nor does it keep an image: whoever removes one need not wait for what nobody uses. It holds
// the layers while it mounts them and from when it is somebody's, and is given to nobody if they are
// not the very same by then.
const (
	// spareDelay is how long the end of a sandbox, and the start of any command, lie back before a
	// spare is made: a caller that came for one command is gone by then, and often the runner with it;
	// one that came for several has a processor to itself.
	spareDelay = 25 * time.Millisecond
	// sparePatience bounds that for commands, which may come all the time.
	sparePatience = time.Second
	// spareAge is how long one waits to be taken. What it has of the host's /etc is as
	// old as it is.
	spareAge = 5 * time.Minute
)

// spare is a sandbox made in advance, or being made.
type spare struct {
	s     *sandbox
	shape *shape
	made  chan struct{} // closed when err is known
	err   error
}

// shapeOf is all of an admitted Spec that matters before it is known whose a sandbox will
// be; ok is false if no spare can be made for it. It is pure.
func shapeOf(spec runner.Spec, egress *runner.Egress) (shape string, rest runner.Spec, ok bool) {
	if spec.Lifetime != runner.OneShot || spec.Nesting || len(spec.Publish) > 0 || len(spec.Inputs) > 0 {
		return "", spec, false
	}
	rest = spec
	if r := spec.Rootfs; r == nil {
		rest.Exposed = false // it is of files that an image's packages have
	} else if len(r.Layers) == 0 { // but of a directory, which its caller opened
		return "", spec, false
	}
	if egress != nil {
		if len(egress.Secrets) > 0 { // whose authority is one of the tree's files
			return "", spec, false
		}
		rest.Egress = &runner.Egress{GoProxy: egress.GoProxy}
	}
	rest.Name, rest.Out, rest.Workspace, rest.Require, rest.Granted, rest.Door = "", "", "", "", "", ""
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
		if unfit != nil {
			go unfit.retire()
		}
		if sp == nil {
			return nil
		}
		<-sp.made
		if sp.err != nil {
			continue
		}
		if sp.s.stillGood() {
			return sp.s
		}
		go sp.retire()
	}
}

// stillGood takes hold of what a spare stands on, which may have gone meanwhile.
func (s *sandbox) stillGood() bool {
	select {
	case <-s.guest.Done(): // somebody killed its PID 1
		return false
	default:
		return s.spec.Rootfs == nil || s.holdAgain() == nil
	}
}

// refillSoon has spares made, if it then turns out that the runner goes on. Not beside a
// command: that is slower by more than the next one is faster.
func (e *Engine) refillSoon() {
	p := &e.spares
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.pending && p.lacking() != nil {
		p.pending, p.wanted = true, time.Now()
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
		if sp.err = sp.s.raise(&ipc.Message{}, &stages{}); sp.err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: make spare: %v\n", sp.err)
			sp.s.abandon()
		}
		p.finish(sp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending = p.disturbing(time.Now()) && p.lacking() != nil; p.pending {
		time.AfterFunc(spareDelay, e.refill)
	}
}

// retire ends a spare that was taken out of the list and is nobody's.
func (sp *spare) retire() {
	<-sp.made
	if sp.err == nil {
		sp.s.abandon()
	}
}

// handOver gives a spare what is its caller's.
func (s *sandbox) handOver(m *ipc.Message) error {
	if w := s.net.out; w != nil {
		s.askProxy(w, m)
	}
	admitted, err := s.openNetwork(m)
	if err != nil {
		return err
	}
	if err := s.tree.Complete(source(m, api.SourceOut, s.spec.Out), source(m, api.SourceWorkspace, s.spec.Workspace)); err != nil {
		return err
	}
	if err := s.openShared(); err != nil {
		return err
	}
	if err := admitted(); err != nil {
		return err
	}
	s.detach() // last: begun sooner, its unmounts would be run before what is waited for
	return nil
}
