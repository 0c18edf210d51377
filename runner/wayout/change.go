package wayout

import (
	"demesne/runner"
	"demesne/runner/outlet"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// Changing has whoever else changes w wait until done is called.
func (w *Way) Changing() (done func()) {
	w.changing.Lock()
	return w.changing.Unlock
}

// With is what is asked for, and c besides. It is for [Way.Change].
func (w *Way) With(c runner.EgressChange) runner.Egress {
	e := w.outlet.Egress()
	e.Allow = append(e.Allow[:len(e.Allow):len(e.Allow)], c.Allow...)
	e.Deny = append(e.Deny[:len(e.Deny):len(e.Deny)], c.Deny...)
	return e
}

// Change has e hold for what comes next. plan is what the proxy says that e amounts to.
func (w *Way) Change(e runner.Egress, plan outlet.Plan) error {
	if err := w.follow(plan.Ports); err != nil {
		return wire.Errorf(wire.CodeInvalid, "%w", err)
	}
	return w.outlet.Change(e, plan)
}

// follow opens what ports a changed policy is about, where each has to be opened.
func (w *Way) follow(ports []uint16) error {
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
func (w *Way) Question() (id uint64, answered <-chan protocol.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	ch := make(chan protocol.Answer, 1)
	w.waiting[w.number] = ch
	return w.number, ch
}

// Answer tells who waits for it, if anybody still does.
func (w *Way) Answer(a protocol.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch := w.waiting[a.ID]; ch != nil {
		delete(w.waiting, a.ID)
		ch <- a
	}
}
