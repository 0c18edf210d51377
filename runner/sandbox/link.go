package sandbox

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network"
	"demesne/runner/network/proxyclient"
)

// link is the part of a sandbox that connects it to the network. It does not change after the sandbox is made, except
// by change, whose calls the Egress serializes, and by adopt.
type link struct {
	*state
	receipts *receipts
	net      *network.Network // nil: the sandbox has no namespaces

	asking sync.Mutex // guards asker
	asker  Caller     // answers questions about egress: the creator, or a later caller
}

// adopt makes c the caller that answers questions, if the one before has left.
func (l *link) adopt(c Caller) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if l.asker == nil || l.asker.Left() {
		l.asker = c
	}
}

func (l *link) answerer() Caller {
	l.asking.Lock()
	defer l.asking.Unlock()
	return l.asker
}

// begin begins the egress of a sandbox that has one. The rules of a prepared sandbox are not yet known.
func (l *link) begin(m *ipc.Message) *network.Egress {
	if l.egress == nil {
		return nil
	}
	w := network.NewEgress(*l.egress)
	if m, ok := l.spec.Member(l.id); ok {
		w.Join(&l.machine.Groups, m)
	}
	if !l.prepared {
		l.askProxy(w, m)
	}
	l.undo.add(w.Close)
	return w
}

// askProxy sends the requested rules to the proxy.
func (l *link) askProxy(w *network.Egress, m *ipc.Message) {
	l.machine.Proxy.Program(m.File(api.FileProxy))
	var ask func(name string, port uint16) // nil: there are no questions
	if l.egress.Ask > 0 {
		ask = l.ask
	}
	w.Begin(&l.machine.Proxy, proxyclient.Config{
		Sandbox: l.id, Egress: *l.egress, Log: m.File(api.FileLog), Records: network.Records(l.egress, m), Ask: ask,
	})
}

// open starts serving the sandbox's network in both directions. admitted waits for the proxy and then
// reports whether it serves and whether its rules are permitted for the sandbox.
func (l *link) open(m *ipc.Message) (admitted func() error, _ error) {
	if err := l.net.Publish(l.spec.Publish, m); err != nil {
		return nil, err
	}
	w := l.net.Egress()
	if w == nil {
		return func() error { return nil }, nil
	}
	var err error
	served := make(chan struct{})
	go func() { err = w.Serve(); close(served) }()
	l.undo.add(func() { <-served }) // otherwise sockets would be closed while they are handed over
	return func() error {
		if <-served; err != nil {
			return err
		}
		plan, err := w.Settled()
		if err == nil {
			err = network.AdmitPlan(&l.spec, plan)
		}
		if err == nil {
			err = w.Settle(&l.spec, l.egress, plan)
		}
		return err
	}, nil
}

// ask asks the creator of the sandbox, or a later caller, about a name and adds a rule for the answer. Without an answer in time the policy does
// not change: the name is denied, and the next attempt asks again.
func (l *link) ask(name string, port uint16) {
	id, answered := l.net.Egress().Question()
	defer l.net.Egress().Answer(api.Answer{ID: id})
	q := runner.Question{Sandbox: l.id, ID: id, Name: name, Port: port}
	asker := l.answerer()
	if err := asker.Event(api.OpAsk, q); err != nil {
		return
	}
	late := time.NewTimer(time.Duration(l.egress.Ask))
	defer late.Stop()
	select {
	case a := <-answered:
		l.applyAnswer(net.JoinHostPort(name, strconv.Itoa(int(port))), a)
	case <-late.C:
	case <-l.finished:
	case <-asker.Done():
	}
}

// applyAnswer adds a rule for the name and port that the answer is about, and for no other port.
func (l *link) applyAnswer(at string, a api.Answer) {
	change := runner.EgressChange{Sandbox: l.id}
	switch {
	case a.Silent:
		return
	case a.Allow:
		change.Allow = []string{at}
	default:
		change.Deny = []string{at}
	}
	l.change(change)
}

// whenBuilt waits until the sandbox is made and returns its egress, or nil if it has none.
func (l *link) whenBuilt() *network.Egress {
	<-l.built
	return l.net.Egress()
}

// change adds rules, within the bounds that apply to a Spec.
func (l *link) change(c runner.EgressChange) error {
	refuse := func(err error) error {
		return ipc.Errorf(ipc.CodeInvalid, "change egress of sandbox %q: %w", l.id, err)
	}
	w := l.whenBuilt()
	if w == nil {
		return &ipc.Error{
			Code: ipc.CodeInvalid, Text: "change egress of sandbox " + l.id + ": it has no network",
			Hint: "create it with --egress or --allow-domain",
		}
	}
	defer w.Changing()()
	e, err := w.With(c)
	if err != nil {
		return refuse(err)
	}
	plan, err := l.machine.Proxy.Plan(e)
	if err != nil {
		return refuse(err)
	}
	if why := network.Leaks(&l.spec, &e, plan.Open); why != "" {
		return refuse(errors.New(why))
	}
	if err := w.Settle(&l.spec, &e, plan); err != nil {
		return refuse(err)
	}
	if err := w.Change(e, plan); err != nil {
		return ipc.Errorf(ipc.AsError(err).Code, "change egress of sandbox %q: %w", l.id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spec.Egress = network.Public(&e)
	l.receipts.setNetwork(w.Word(), w.Layers())
	return nil
}
