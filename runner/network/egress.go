// Package wayout is how a sandbox with a network reaches it: its gateway, which is the runner's, and what
// serves that, in another process.
//
//	sandbox ── veth ── gateway's sockets ── demesne-proxy ── the host's network
//
//	w := network.NewEgress(asked)
//	w.Begin(proxy, …)     // the proxy understands what is allowed
//	w.Publish(network.Gateway) // the gateway, whose namespace the sandbox is made in: beside that, or before
//	w.Serve()             // the proxy has the sockets
//	defer w.Close()
//
// The sockets are there before the sandbox and wait for the proxy. When the runner is killed its descriptors
// are closed, and gateway and connections with them. What the receipt says of a way out ([Egress.Layers]) was
// tried: see netns.Gateway.Verify. What is allowed is package outlet's to send and the proxy's to decide;
// whether a sandbox may have it, package engine's.
package network

import (
	"fmt"
	"os"
	"sync"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// Egress is one sandbox's. Its methods may be called by several goroutines, those that make it in their order.
type Egress struct {
	asked   runner.Egress // with what is in no Spec any more
	gateway *netns.Gateway
	golang  *os.File      // the listener of a Go module proxy inside; nil: none
	ports   []uint16      // served by name, where the kernel has no tproxy
	ported  []*os.File    // the sockets of those
	done    chan struct{} // closed when the proxy has answered; nil: it was not asked yet
	outlet  *proxyclient.ProxySession
	err     error

	changing sync.Mutex // one change at a time

	mu      sync.Mutex
	used    bool                         // by a command
	waiting map[uint64]chan<- api.Answer // by question
	number  uint64
}

// NewEgress is a way out for what was asked for; of that only GoProxy has to be known before [Egress.Begin].
func NewEgress(asked runner.Egress) *Egress {
	return &Egress{asked: asked, waiting: map[uint64]chan<- api.Answer{}}
}

// Begin asks p what the way out amounts to. log may be nil, and is closed with the way out; ask may be nil.
func (w *Egress) Begin(p *proxyclient.Proxy, id string, asked runner.Egress, log *os.File, ask func(name string, port uint16)) {
	w.asked, w.done = asked, make(chan struct{})
	v4, v6 := netns.Pools()
	go func() {
		defer close(w.done)
		w.outlet, w.err = p.Open(proxyclient.Config{Sandbox: id, Egress: asked, V4: v4, V6: v6, Log: log, Ask: ask})
	}()
}

// Settled waits for the proxy's answer.
func (w *Egress) Settled() (proxyclient.Plan, error) {
	<-w.done
	if w.err != nil {
		return proxyclient.Plan{}, w.err
	}
	return w.outlet.Plan(), nil
}

// Gateway makes a gateway, and verifies that its sockets are reached from inside. It is what [Egress.Publish] takes.
func Gateway() (*netns.Gateway, error) {
	g, err := netns.NewGateway()
	if err != nil {
		return nil, &ipc.Error{
			Code: ipc.CodeRequirement, Text: err.Error(),
			Hint: "demesne check tells what this machine lacks; --egress none needs nothing of it",
		}
	}
	if err := g.Verify(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Publish takes the gateway that [Gateway] gives, or gave ahead. The sandbox is to be in ns.
func (w *Egress) Open(gateway func() (*netns.Gateway, error)) (ns *netns.NS, err error) {
	if w.gateway, err = gateway(); err != nil {
		return nil, err
	}
	if w.asked.GoProxy {
		w.golang, err = w.gateway.Sandbox.Listen(goProxy)
	}
	return w.gateway.Sandbox, err
}

// Serve has the proxy serve the gateway's sockets, once it has answered.
func (w *Egress) Serve() error {
	plan, err := w.Settled()
	if err != nil {
		return err
	}
	named := w.gateway.Named
	if w.gateway.NamedErr != nil {
		if named, err = w.listenOn(plan.Ports); err != nil {
			return err
		}
	}
	sockets := ipc.Files{proxyclient.FileProxy: w.gateway.Proxy, proxyclient.FileDNS: w.gateway.DNS, proxyclient.FileDNSTCP: w.gateway.DNSTCP}
	if w.golang != nil {
		sockets[proxyclient.FileGo] = w.golang
	}
	return w.outlet.Listen(proxyclient.Listen{NoIPv6: w.gateway.IPv6Err != nil}, sockets, named)
}

// Close ends what the sandbox has open, and its gateway.
func (w *Egress) Close() {
	if w.done != nil {
		if _, err := w.Settled(); err == nil {
			w.outlet.Close()
		}
	}
	if w.gateway != nil {
		w.gateway.Close()
	}
	for _, f := range append(w.ported, w.golang) {
		f.Close() // of one that is nil does nothing
	}
}

// Blocked is what the sandbox did not get, so far.
func (w *Egress) Blocked() []runner.Blocked {
	w.mu.Lock()
	used := w.used
	w.used = true
	w.mu.Unlock()
	if !used { // by the first command: nobody wanted anything before
		return nil
	}
	return w.outlet.Blocked()
}

// Since is what came to be blocked between two answers of [Egress.Blocked]. It is pure.
func Since(before, now []runner.Blocked) []runner.Blocked {
	type key struct {
		host, reason string
		port         uint16
	}
	seen := map[key]int{}
	for _, b := range before {
		seen[key{b.Host, b.Reason, b.Port}] = b.Times
	}
	var all []runner.Blocked
	for _, b := range now {
		if b.Times -= seen[key{b.Host, b.Reason, b.Port}]; b.Times > 0 {
			all = append(all, b)
		}
	}
	return all
}

// Word is the receipt's word for it.
func (w *Egress) Word() string {
	return word(w.outlet.Plan())
}

func word(p proxyclient.Plan) string {
	switch {
	case p.Open:
		return "open"
	case p.Rules == 1:
		return "filtered: 1 rule"
	default:
		return fmt.Sprintf("filtered: %d rules", p.Rules)
	}
}
