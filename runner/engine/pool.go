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

// A runner that lingers after a sandbox has ended prepares sandboxes. It creates them in advance, like any other
// sandbox, restricted and verified, in the shapes that were requested last. Only the owner is left open. When a
// prepared sandbox is taken, /out and /workspace are mounted in it. Its gateway, if any, goes to the proxy with the
// caller's rules. Only then does it get a name, an owner and a receipt. A prepared sandbox never had another owner
// and is used once. No list shows it, and it does not keep the runner alive.
//
// A prepared sandbox does not lock its image, so that removing an image need not wait for unused sandboxes. It
// locks the layers while it mounts them, and again when it is taken. It is discarded if the layers have changed in
// between.
const (
	// spareDelay is the time between the end of a sandbox, or the start of any command, and the making of a
	// prepared sandbox. A caller that came for one command has left by then, often together with the runner. A
	// caller that runs several commands keeps a processor to itself.
	spareDelay = 25 * time.Millisecond
	// sparePatience bounds the wait for commands, which may start all the time.
	sparePatience = time.Second
	// spareAge is how long a prepared sandbox waits to be taken. Its copies from the host's /etc are equally old.
	spareAge = 5 * time.Minute
)

// prepared is a prepared sandbox, or one in the making.
type prepared struct {
	s     *sandbox
	shape *shape
	made  chan struct{} // closed when err is known
	err   error
}

// shapeOf returns the part of an admitted Spec that does not depend on the future owner. ok is false if no sandbox
// can be prepared for the Spec. It is pure.
func shapeOf(spec runner.Spec, egress *runner.Egress) (shape string, rest runner.Spec, ok bool) {
	if spec.Lifetime != runner.OneShot || spec.Nesting || len(spec.Publish) > 0 || len(spec.Inputs) > 0 {
		return "", spec, false
	}
	rest = spec
	if r := spec.Rootfs; r == nil {
		rest.Exposed = false // only matters for set-user-ID files of an image's packages
	} else if len(r.Layers) == 0 { // a directory, which its caller opened
		return "", spec, false
	}
	if egress != nil {
		if len(egress.Secrets) > 0 { // their certificate authority is among the tree's files
			return "", spec, false
		}
		rest.Egress = &runner.Egress{GoProxy: egress.GoProxy}
	}
	rest.Name, rest.Out, rest.Workspace, rest.Require, rest.Granted, rest.Door = "", "", "", "", "", ""
	text, err := json.Marshal(rest)
	return string(text), rest, err == nil
}

// sandboxFor returns a prepared sandbox for an admitted Spec and its whole Egress, or a new sandbox that is yet to
// be made.
func (c *caller) sandboxFor(spec runner.Spec, egress *runner.Egress) *sandbox {
	s := c.e.takeSpare(spec, egress)
	if s == nil {
		s = c.e.newSandbox(newID(), spec)
	}
	now := time.Now()
	s.spec, s.egress, s.asker, s.created, s.began = spec, egress, c, now, now
	return s
}

// takeSpare returns a prepared sandbox of the Spec's shape, or nil. It waits for one in the making, which is ahead
// of a new one.
func (e *Engine) takeSpare(spec runner.Spec, egress *runner.Egress) *sandbox {
	shape, rest, ok := shapeOf(spec, egress)
	if !ok || e.boot.Mode == userns.ModeMinimal {
		return nil
	}
	for {
		sp, unfit := e.pool.take(shape, rest)
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

// stillGood locks the layers of a prepared sandbox. It returns false if its layers or its PID 1 are gone.
func (s *sandbox) stillGood() bool {
	select {
	case <-s.guest.Done(): // its PID 1 was killed
		return false
	default:
		return s.spec.Rootfs == nil || s.holdAgain() == nil
	}
}

// refillSoon schedules the making of prepared sandboxes, for the case that the runner lingers. It does not start at
// once: beside a command it would cost that command more time than the next one gains.
func (e *Engine) refillSoon() {
	p := &e.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.pending && p.lacking() != nil {
		p.pending, p.wanted = true, time.Now()
		time.AfterFunc(spareDelay, e.refill)
	}
}

// refill makes the lacking prepared sandboxes, one at a time.
func (e *Engine) refill() {
	p := &e.pool
	for e.goesOn() {
		sp := p.begin(e)
		if sp == nil {
			break
		}
		if sp.err = sp.s.raise(&ipc.Message{}, &stages{}); sp.err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: prepare sandbox for the pool: %v\n", sp.err)
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

// retire ends a prepared sandbox that was taken out of the list and has no owner.
func (sp *prepared) retire() {
	<-sp.made
	if sp.err == nil {
		sp.s.abandon()
	}
}

// handOver gives a prepared sandbox the directories, sockets and rules of its caller.
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
	s.detach() // last: its unmounts would delay the steps above, which are waited for
	return nil
}
