package proxyclient

import (
	"fmt"
	"maps"
	"os"

	"demesne/runner"
	"demesne/runner/ipc"
)

// serve registers o with the process now, with the sockets that are known, and returns its plan.
func (o *ProxySession) serve(now *process) (plan Plan, err error) {
	files := ipc.Files{}
	o.mu.Lock()
	body := Serve{Sandbox: o.id, Egress: o.egress, V4: o.v4, V6: o.v6, Member: o.member, Memory: o.plan.Memory, Spent: o.spent, Listen: o.listen}
	maps.Copy(files, o.sockets)
	o.mu.Unlock()
	maps.Copy(files, o.files)
	err = now.call(OpServe, body, files, &plan)
	return plan, err
}

// again registers o with the process now, which replaces the one that served o.
func (o *ProxySession) again(now *process) error {
	plan, err := o.serve(now)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.plan.Memory = plan.Memory
	o.mu.Unlock()
	return nil
}

// Plan returns the current plan.
func (o *ProxySession) Plan() Plan {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan
}

// Egress returns the current rules as text.
func (o *ProxySession) Egress() runner.Egress {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.egress
}

// Listen makes the proxy serve sockets.
func (o *ProxySession) Listen(s Sockets) error {
	o.mu.Lock()
	o.take(s)
	l, files := *o.listen, o.sockets
	o.mu.Unlock()
	return o.p.call(OpListen, l, files, nil)
}

// take sets what o listens on. mu is held.
func (o *ProxySession) take(s Sockets) {
	s.Listen.Sandbox = o.id
	o.listen, o.sockets, o.named = &s.Listen, maps.Clone(s.Files), len(s.Named)
	for i, f := range s.Named {
		o.sockets[fmt.Sprintf("%s%d", FileNamed, i)] = f
	}
}

// Add makes the proxy serve further sockets for names, after Listen and with its settings.
func (o *ProxySession) Add(named []*os.File) error {
	sockets := ipc.Files{}
	o.mu.Lock()
	whole := maps.Clone(o.sockets) // a concurrent restart may be sending the old map
	for i, f := range named {
		sockets[fmt.Sprintf("%s%d", FileNamed, i)] = f
		whole[fmt.Sprintf("%s%d", FileNamed, o.named+i)] = f
	}
	o.named += len(named)
	o.sockets = whole
	l := *o.listen
	o.mu.Unlock()
	return o.p.call(OpListen, l, sockets, nil)
}

// Change applies e. plan is the proxy's plan for e.
func (o *ProxySession) Change(e runner.Egress, plan Plan) error {
	o.mu.Lock()
	o.egress = e
	o.plan.Open, o.plan.Rules = plan.Open, plan.Rules
	o.mu.Unlock()
	return o.p.call(OpChange, Change{Sandbox: o.id, Egress: e}, nil, nil)
}

// Blocked lists what was denied to the sandbox so far. It also lists every denial by a process that was killed. For
// those, the counts are exact only to the last power of two; the log is exact.
func (o *ProxySession) Blocked() []runner.Blocked {
	var now []runner.Blocked
	if o.p.has(o) && o.p.call(OpBlocked, Target{o.id}, nil, &now) == nil {
		o.learn(now)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return merge(o.before, o.now)
}

func (o *ProxySession) learn(now []runner.Blocked) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = now
}

// inherit takes over the notes of a process that has ended. A second call adds nothing.
func (o *ProxySession) inherit(gone *process) {
	l := gone.noted.take(o.id)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before, o.now = merge(o.before, most(o.now, l.denied)), nil
	o.spent = spentMost(o.spent, l.spent)
}

func (p *Proxy) has(o *ProxySession) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[o.id] == o
}

// Close closes the sandbox's connections. When it returns, the log is complete.
func (o *ProxySession) Close() {
	o.p.mu.Lock()
	delete(o.p.sessions, o.id)
	now := o.p.now
	o.p.mu.Unlock()
	var blocked []runner.Blocked
	if now.call(OpClose, Target{o.id}, nil, &blocked) == nil {
		o.learn(blocked)
		now.noted.take(o.id)
	} else {
		o.inherit(now)
	}
	o.closeFiles()
}

func (o *ProxySession) closeFiles() {
	for _, f := range o.files {
		f.Close() // Close of a nil *os.File does nothing
	}
}
