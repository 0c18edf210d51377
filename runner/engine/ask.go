package engine

import (
	"errors"
	"time"

	"demesne/runner"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// ask puts a name to who made s, and adds a rule of the answer. No answer in time leaves
// the policy as it is: the name is denied, and asked about the next time.
func (s *sandbox) ask(name string, port uint16) {
	id, answered := s.net.out.question()
	defer s.net.out.answer(protocol.Answer{ID: id})
	q := runner.Question{Sandbox: s.id, ID: id, Name: name, Port: port}
	if err := s.asker.peer.Event(protocol.OpAsk, q); err != nil {
		return
	}
	late := time.NewTimer(time.Duration(s.spec.Egress.Ask))
	defer late.Stop()
	select {
	case a := <-answered:
		s.heed(name, a)
	case <-late.C:
	case <-s.finished:
	case <-s.asker.peer.Done():
	}
}

// heed makes a rule of what somebody said about a name.
func (s *sandbox) heed(name string, a protocol.Answer) {
	change := runner.EgressChange{Sandbox: s.id}
	switch {
	case a.Silent:
		return
	case a.Allow:
		change.Allow = []string{name}
	default:
		change.Deny = []string{name}
	}
	s.changeEgress(change)
}

// question numbers a new one.
func (w *wayOut) question() (id uint64, answered <-chan protocol.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	ch := make(chan protocol.Answer, 1)
	w.waiting[w.number] = ch
	return w.number, ch
}

// answer tells who waits for it, if anybody still does.
func (w *wayOut) answer(a protocol.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch := w.waiting[a.ID]; ch != nil {
		delete(w.waiting, a.ID)
		ch <- a
	}
}

// answer passes on what somebody said about a name.
func (e *Engine) answer(a protocol.Answer) error {
	s, err := e.find(a.Sandbox)
	if err != nil {
		return err
	}
	if w := s.way(); w != nil {
		w.answer(a)
	}
	return nil
}

// changeEgress changes what a live sandbox may reach.
func (e *Engine) changeEgress(change runner.EgressChange) error {
	s, err := e.find(change.Sandbox)
	if err != nil {
		return err
	}
	if err := s.changeEgress(change); err != nil || !s.stays() {
		return err
	}
	return s.record() // a restart must not take back what was denied
}

// way is the way out, once s is made; nil for one without.
func (s *sandbox) way() *wayOut {
	<-s.built
	if s.net == nil {
		return nil
	}
	return s.net.out
}

// changeEgress adds rules, as far as a Spec could have them.
func (s *sandbox) changeEgress(c runner.EgressChange) error {
	refuse := func(err error) error {
		return wire.Errorf(wire.CodeInvalid, "change egress of sandbox %q: %w", s.id, err)
	}
	w := s.way()
	if w == nil {
		return &wire.Error{
			Code: wire.CodeInvalid, Text: "change egress of sandbox " + s.id + ": it was made without a network",
			Hint: "make it with --egress or --allow-domain",
		}
	}
	w.changing.Lock()
	defer w.changing.Unlock()
	e := w.outlet.Egress()
	e.Allow = append(e.Allow[:len(e.Allow):len(e.Allow)], c.Allow...)
	e.Deny = append(e.Deny[:len(e.Deny):len(e.Deny)], c.Deny...)
	plan, err := s.e.proxy.Plan(e)
	if err != nil {
		return refuse(err)
	}
	if why := leaks(&s.spec, &e, plan.Open); why != "" {
		return refuse(errors.New(why))
	}
	if err := w.follow(plan.Ports); err != nil {
		return refuse(err)
	}
	if err := w.outlet.Change(e, plan); err != nil {
		return wire.Errorf(codeOf(err), "change egress of sandbox %q: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec.Egress = public(&e)
	receipt := *s.receipt
	receipt.Network, receipt.Layers = networkWord(plan), withLayers(receipt.Layers, w.layers())
	s.receipt = &receipt
	return nil
}
