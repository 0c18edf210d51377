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

// ask puts a name to who made s, and adds a rule of the answer. No answer in time leaves
// the policy as it is: the name is denied, and asked about the next time.
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

// applyAnswer makes a rule of the answer about a name and port. It is about no other port.
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

// answer passes on what somebody said about a name.
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
func (s *sandbox) way() *network.Egress {
	<-s.built
	if s.net == nil {
		return nil
	}
	return s.net.out
}

// changeEgress adds rules, as far as a Spec could have them.
func (s *sandbox) changeEgress(c runner.EgressChange) error {
	refuse := func(err error) error {
		return ipc.Errorf(ipc.CodeInvalid, "change egress of sandbox %q: %w", s.id, err)
	}
	w := s.way()
	if w == nil {
		return &ipc.Error{
			Code: ipc.CodeInvalid, Text: "change egress of sandbox " + s.id + ": it was made without a network",
			Hint: "make it with --egress or --allow-domain",
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

// withLayers are a receipt's layers with those of the same names replaced. It is pure.
func withLayers(all, newer []runner.Layer) []runner.Layer {
	all = slices.Clone(all)
	for i, l := range all {
		if n := slices.IndexFunc(newer, func(x runner.Layer) bool { return x.Name == l.Name }); n >= 0 {
			all[i] = newer[n]
		}
	}
	return all
}
