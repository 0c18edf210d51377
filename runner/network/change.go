package network

import (
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// Changing has whoever else changes w wait until done is called.
func (w *Egress) Changing() (done func()) {
	w.changing.Lock()
	return w.changing.Unlock
}

// With is what is asked for, and c besides. It is for [Egress.Change].
func (w *Egress) With(c runner.EgressChange) runner.Egress {
	e := w.outlet.Egress()
	e.Allow = append(e.Allow[:len(e.Allow):len(e.Allow)], c.Allow...)
	e.Deny = append(e.Deny[:len(e.Deny):len(e.Deny)], c.Deny...)
	return e
}

// Change has e hold for what comes next. plan is what the proxy says that e amounts to.
func (w *Egress) Change(e runner.Egress, plan proxyclient.Plan) error {
	if err := w.follow(plan.Ports); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "%w", err)
	}
	return w.outlet.Change(e, plan)
}

// follow opens what ports a changed policy is about, where each has to be opened.
func (w *Egress) follow(ports []uint16) error {
	if w.gateway.NamedErr == nil {
		return nil
	}
	opened, err := w.listenOn(ports)
	if err != nil || len(opened) == 0 {
		return err
	}
	return w.outlet.Add(opened)
}

// Question numbers a new one. Exactly one answer comes, or none.
func (w *Egress) Question() (id uint64, answered <-chan api.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	ch := make(chan api.Answer, 1)
	w.waiting[w.number] = ch
	return w.number, ch
}

// Answer tells who waits for it, if anybody still does.
func (w *Egress) Answer(a api.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch := w.waiting[a.ID]; ch != nil {
		delete(w.waiting, a.ID)
		ch <- a
	}
}
