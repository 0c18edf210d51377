package engine

import (
	"context"
	"time"

	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/wire"
)

// ask puts a name to who made s, and adds a rule of the answer. No answer in time leaves
// the policy as it is: the name is denied, and asked about the next time.
func (s *sandbox) ask(ctx context.Context, name policy.Name, port uint16) {
	id, answered := s.net.outlet.question()
	defer s.net.outlet.answer(id, false)
	q := runner.Question{Sandbox: s.id, ID: id, Name: name.String(), Port: port}
	if err := s.asker.peer.Event(runner.OpAsk, q); err != nil {
		return
	}
	late := time.NewTimer(time.Duration(s.spec.Egress.Ask))
	defer late.Stop()
	select {
	case yes := <-answered:
		change := runner.EgressChange{Sandbox: s.id}
		if yes {
			change.Allow = []string{q.Name}
		} else {
			change.Deny = []string{q.Name}
		}
		s.changeEgress(change)
	case <-late.C:
	case <-ctx.Done():
	case <-s.asker.peer.Done():
	}
}

// question numbers a new one.
func (o *outlet) question() (id uint64, answered <-chan bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	ch := make(chan bool, 1)
	o.waiting[o.asked] = ch
	return o.asked, ch
}

// answer tells who waits for it, if anybody still does.
func (o *outlet) answer(id uint64, yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ch := o.waiting[id]; ch != nil {
		delete(o.waiting, id)
		ch <- yes
	}
}

// dispatchEgress serves the calls about a live sandbox's network.
func (c *caller) dispatchEgress(m *wire.Message) error {
	if m.Op == runner.OpAnswer {
		var a runner.Answer
		if err := m.Decode(&a); err != nil {
			return err
		}
		s, err := c.e.find(a.Sandbox)
		if err == nil {
			if o := s.outlet(); o != nil {
				o.answer(a.ID, a.Allow)
			}
		}
		return err
	}
	var change runner.EgressChange
	if err := m.Decode(&change); err != nil {
		return err
	}
	s, err := c.e.find(change.Sandbox)
	if err != nil {
		return err
	}
	if err := s.changeEgress(change); err != nil || !s.stays() {
		return err
	}
	return s.record() // a restart must not take back what was denied
}

// outlet is nil until s is made, and for one without.
func (s *sandbox) outlet() *outlet {
	<-s.built
	if s.net == nil {
		return nil
	}
	return s.net.outlet
}

// changeEgress adds rules, as far as a Spec could have them.
func (s *sandbox) changeEgress(c runner.EgressChange) error {
	refuse := func(err error) error {
		return wire.Errorf(wire.CodeInvalid, "change egress of sandbox %q: %w", s.id, err)
	}
	o := s.outlet()
	if o == nil {
		return &wire.Error{
			Code: wire.CodeInvalid, Text: "change egress of sandbox " + s.id + ": it was made without a network",
			Hint: "make it with --egress or --allow-domain",
		}
	}
	allow, err := parseRules(c.Allow)
	if err != nil {
		return refuse(err)
	}
	deny, err := parseRules(c.Deny)
	if err != nil {
		return refuse(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := *o.allowed()
	e.policy = e.policy.Allow(allow...).Deny(deny...)
	e.open = e.open || reachesAnybody(e.policy)
	spec := *s.spec.Egress
	if why := leaks(&s.spec, &spec, e.open); why != "" {
		return wire.Errorf(wire.CodeInvalid, "change egress of sandbox %q: %s", s.id, why)
	}
	o.use(&e)
	spec.Allow = append(spec.Allow[:len(spec.Allow):len(spec.Allow)], c.Allow...)
	spec.Deny = append(spec.Deny[:len(spec.Deny):len(spec.Deny)], c.Deny...)
	s.spec.Egress = &spec
	receipt := *s.receipt
	receipt.Network = e.network()
	s.receipt = &receipt
	return nil
}
