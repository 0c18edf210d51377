package engine

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network"
)

// ask asks the creator of s about a name and adds a rule for the answer. Without an answer in time the policy does
// not change: the name is denied, and the next attempt asks again.
func (s *sandbox) ask(name string, port uint16) {
	id, answered := s.net.out.Question()
	defer s.net.out.Answer(api.Answer{ID: id})
	q := runner.Question{Sandbox: s.id, ID: id, Name: name, Port: port}
	if err := s.asker.peer.Event(api.OpAsk, q); err != nil {
		return
	}
	late := time.NewTimer(time.Duration(s.egress.Ask))
	defer late.Stop()
	select {
	case a := <-answered:
		s.applyAnswer(net.JoinHostPort(name, strconv.Itoa(int(port))), a)
	case <-late.C:
	case <-s.finished:
	case <-s.asker.peer.Done():
	}
}

// applyAnswer adds a rule for the name and port that the answer is about, and for no other port.
func (s *sandbox) applyAnswer(at string, a api.Answer) {
	change := runner.EgressChange{Sandbox: s.id}
	switch {
	case a.Silent:
		return
	case a.Allow:
		change.Allow = []string{at}
	default:
		change.Deny = []string{at}
	}
	s.changeEgress(change)
}

// answer forwards a caller's answer to the sandbox that asked.
func (e *Engine) answer(a api.Answer) error {
	s, err := e.find(a.Sandbox)
	if err != nil {
		return err
	}
	if w := s.way(); w != nil {
		w.Answer(a)
	}
	return nil
}

// changeEgress changes the egress rules of a live sandbox.
func (e *Engine) changeEgress(change runner.EgressChange) error {
	s, err := e.find(change.Sandbox)
	if err != nil {
		return err
	}
	if err := s.changeEgress(change); err != nil || !s.stays() {
		return err
	}
	return s.record() // a restart must not undo a denial
}

// way waits until s is made and returns its egress, or nil if it has none.
func (s *sandbox) way() *network.Egress {
	<-s.built
	if s.net == nil {
		return nil
	}
	return s.net.out
}

// changeEgress adds rules, within the bounds that apply to a Spec.
func (s *sandbox) changeEgress(c runner.EgressChange) error {
	refuse := func(err error) error {
		return ipc.Errorf(ipc.CodeInvalid, "change egress of sandbox %q: %w", s.id, err)
	}
	w := s.way()
	if w == nil {
		return &ipc.Error{
			Code: ipc.CodeInvalid, Text: "change egress of sandbox " + s.id + ": it has no network",
			Hint: "create it with --egress or --allow-domain",
		}
	}
	defer w.Changing()()
	e := w.With(c)
	plan, err := s.e.proxy.Plan(e)
	if err != nil {
		return refuse(err)
	}
	if why := leaks(&s.spec, &e, plan.Open); why != "" {
		return refuse(errors.New(why))
	}
	if err := w.Change(e, plan); err != nil {
		return ipc.Errorf(codeOf(err), "change egress of sandbox %q: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec.Egress = public(&e)
	receipt := *s.receipt
	receipt.Network, receipt.Layers = w.Word(), withLayers(receipt.Layers, w.Layers())
	s.receipt = &receipt
	return nil
}

// withLayers returns the layers of a receipt, with newer ones in place of those of the same names. It is pure.
func withLayers(all, newer []runner.Layer) []runner.Layer {
	all = slices.Clone(all)
	for i, l := range all {
		if n := slices.IndexFunc(newer, func(x runner.Layer) bool { return x.Name == l.Name }); n >= 0 {
			all[i] = newer[n]
		}
	}
	return all
}
