package network

import (
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// Changing makes other changes to w wait until done is called.
func (w *Egress) Changing() (done func()) {
	w.changing.Lock()
	return w.changing.Unlock
}

// With returns an argument for [Egress.Change]: the current rules, extended or replaced by c's rules, and the current routes
// with c's headers.
func (w *Egress) With(c runner.EgressChange) (e runner.Egress, err error) {
	e = w.session.Egress()
	if c.Replace {
		e.Mode, e.Allow, e.Deny = c.Mode, nil, nil
	}
	e.Allow = append(e.Allow[:len(e.Allow):len(e.Allow)], c.Allow...)
	e.Deny = append(e.Deny[:len(e.Deny):len(e.Deny)], c.Deny...)
	e.Routes, err = withHeaders(e.Routes, c.Headers)
	return e, err
}

// Change applies e to new connections. plan is the proxy's plan for e.
func (w *Egress) Change(e runner.Egress, plan proxyclient.Plan) error {
	if err := w.follow(plan.Ports); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "%w", err)
	}
	return w.session.Change(e, plan)
}

// follow opens sockets for the ports of a changed policy, on a kernel without tproxy.
func (w *Egress) follow(ports []uint16) error {
	if w.gateway == nil || w.gateway.NamedErr == nil {
		return nil
	}
	opened, err := w.listenOn(ports)
	if err != nil || len(opened) == 0 {
		return err
	}
	return w.session.Add(opened)
}

// Question registers a new question and returns its number. At most one answer arrives on the channel.
func (w *Egress) Question() (id uint64, answered <-chan api.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	ch := make(chan api.Answer, 1)
	w.waiting[w.number] = ch
	return w.number, ch
}

// Answer delivers an answer to the waiting question. It ignores an answer to any other question.
func (w *Egress) Answer(a api.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch := w.waiting[a.ID]; ch != nil {
		delete(w.waiting, a.ID)
		ch <- a
	}
}
