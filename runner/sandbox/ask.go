package sandbox

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
func (s *Sandbox) ask(name string, port uint16) {
	id, answered := s.net.Egress().Question()
	defer s.net.Egress().Answer(api.Answer{ID: id})
	q := runner.Question{Sandbox: s.id, ID: id, Name: name, Port: port}
	if err := s.asker.Event(api.OpAsk, q); err != nil {
		return
	}
	late := time.NewTimer(time.Duration(s.egress.Ask))
	defer late.Stop()
	select {
	case a := <-answered:
		s.applyAnswer(net.JoinHostPort(name, strconv.Itoa(int(port))), a)
	case <-late.C:
	case <-s.finished:
	case <-s.asker.Done():
	}
}

// applyAnswer adds a rule for the name and port that the answer is about, and for no other port.
func (s *Sandbox) applyAnswer(at string, a api.Answer) {
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

// Answer forwards a caller's answer to a question of s.
func (s *Sandbox) Answer(a api.Answer) {
	if w := s.builtEgress(); w != nil {
		w.Answer(a)
	}
}

// ChangeEgress changes the egress rules of s for callers.
func (s *Sandbox) ChangeEgress(change runner.EgressChange) error {
	if err := s.changeEgress(change); err != nil || !s.Stays() {
		return err
	}
	return s.record() // a restart must not undo a denial
}

// builtEgress waits until s is made and returns its egress, or nil if it has none.
func (s *Sandbox) builtEgress() *network.Egress {
	<-s.built
	return s.net.Egress()
}

// changeEgress adds rules, within the bounds that apply to a Spec.
func (s *Sandbox) changeEgress(c runner.EgressChange) error {
	refuse := func(err error) error {
		return ipc.Errorf(ipc.CodeInvalid, "change egress of sandbox %q: %w", s.id, err)
	}
	w := s.builtEgress()
	if w == nil {
		return &ipc.Error{
			Code: ipc.CodeInvalid, Text: "change egress of sandbox " + s.id + ": it was made without a network",
			Hint: "make it with --egress or --allow-domain",
		}
	}
	defer w.Changing()()
	e := w.With(c)
	plan, err := s.on.Proxy.Plan(e)
	if err != nil {
		return refuse(err)
	}
	if why := network.Leaks(&s.spec, &e, plan.Open); why != "" {
		return refuse(errors.New(why))
	}
	if err := w.Change(e, plan); err != nil {
		return ipc.Errorf(ipc.AsError(err).Code, "change egress of sandbox %q: %w", s.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec.Egress = network.Public(&e)
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
