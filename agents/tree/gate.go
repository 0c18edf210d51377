package tree

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// gate answers the proxy's questions about the requests to one route of a node: see [runner.GateMessage].
type gate struct {
	node *node
	conn net.Conn
	far  *os.File // for the route, until its sandbox is made

	mu      sync.Mutex
	held    map[int64]reservation // requests that were forwarded, or will be at once
	dropped map[int64]bool        // requests that were dropped before their answer
	over    bool                  // no further request is forwarded
}

// reservation is a request whose usage is not known yet.
type reservation struct {
	asked runner.GateMessage
	amount
}

// newGate returns a gate, which answers until close.
func (n *node) newGate() (*gate, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	near := os.NewFile(uintptr(ends[0]), "gate")
	defer near.Close()
	g := &gate{node: n, far: os.NewFile(uintptr(ends[1]), "gate"), held: map[int64]reservation{}, dropped: map[int64]bool{}}
	if g.conn, err = net.FileConn(near); err != nil {
		g.far.Close()
		return nil, err
	}
	go g.serve()
	return g, nil
}

func (g *gate) serve() {
	buf := make([]byte, runner.MaxGateMessage)
	for {
		n, err := g.conn.Read(buf)
		var m runner.GateMessage
		if err != nil || n == 0 || json.Unmarshal(buf[:n], &m) != nil {
			return
		}
		switch m.Op {
		case runner.GateStart:
			g.forget(false)
		case runner.GateAsk:
			go g.answer(m)
		case runner.GateDrop:
			g.drop(m.Number)
		}
	}
}

// answer decides about one request, and tells the proxy.
func (g *gate) answer(m runner.GateMessage) {
	a := runner.GateAnswer{Number: m.Number}
	if err := g.decide(m); err != nil {
		a.Refused = err.Error()
	}
	text, _ := json.Marshal(a) // cannot fail
	g.conn.Write(text)         // on an error the proxy has ended, and forwards nothing
}

// decide reserves what a request may use.
func (g *gate) decide(m runner.GateMessage) error {
	n := g.node
	_, cost, tokens := n.budget.bounds()
	switch {
	case m.Odd != "" && (cost || tokens):
		return fmt.Errorf("%s, and this agent has a bound of its cost or tokens", m.Odd)
	case cost && !n.asked.meter.Priced(m.Model):
		return errUnpriced(m.Model)
	}
	r := reservation{m, amount{turns: 1}}
	r.cost, r.tokens = n.asked.meter.Estimate(m.Model, m.Sent, m.MaxOutput)
	n.readUsage() // what has ended must not be in the way
	if err := n.budget.reserve(n.ctx, r.amount); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || g.dropped[m.Number] {
		delete(g.dropped, m.Number)
		n.budget.settle(r.amount, amount{})
		return errParent
	}
	g.held[m.Number] = r
	return nil
}

// errUnpriced refuses a model whose price is not known.
func errUnpriced(model string) error {
	return fmt.Errorf(`the price of model %q is not known, and the cost is bounded: add {"prices": [{"model": %q, "input": DOLLARS, "output": DOLLARS}]}, `+
		`for a million tokens, to ~/.config/demesne/agents.json`, model, model)
}

// release ends a reservation with what the request used. It reports whether there was one.
func (g *gate) release(number int64, used amount) bool {
	g.mu.Lock()
	r, ok := g.held[number]
	delete(g.held, number)
	g.mu.Unlock()
	if ok {
		g.node.budget.settle(r.amount, used)
	}
	return ok
}

// drop ends the reservation of a request that was not forwarded, now or as soon as it is made.
func (g *gate) drop(number int64) {
	g.mu.Lock()
	r, made := g.held[number]
	if delete(g.held, number); !made {
		g.dropped[number] = true
	}
	g.mu.Unlock()
	if made {
		g.node.budget.settle(r.amount, amount{})
	}
}

// forget charges the reservations of a proxy that has ended: its requests get no record any more. over ends the gate.
func (g *gate) forget(over bool) {
	g.node.readUsage()
	g.mu.Lock()
	held := g.held
	g.held, g.over = map[int64]reservation{}, g.over || over
	g.mu.Unlock()
	for _, r := range held {
		used := g.node.asked.lost(r.asked)
		g.node.budget.settle(r.amount, used)
	}
}

// close ends the gate. The sandbox and its requests have ended.
func (g *gate) close() {
	g.conn.Close()
	g.far.Close()
	g.forget(true)
}
