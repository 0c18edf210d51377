package engine

import (
	"net/netip"
	"strings"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/inlet"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// network is the namespace a sandbox is in, its way out if it has one, and the ways in.
// A nil network, of a sandbox without namespaces, is none of these.
type network struct {
	ns     *netns.NS
	out    *wayOut // nil: none
	inlets []*inlet.Inlet
}

// newNetwork starts making a network, with a way out unless that is nil; join waits for
// it.
func newNetwork(w *wayOut) (join func() (*network, error)) {
	type made struct {
		net *network
		err error
	}
	ch := make(chan made, 1)
	go func() {
		net, err := makeNetwork(w)
		ch <- made{net, err}
	}()
	return func() (*network, error) {
		m := <-ch
		return m.net, m.err
	}
}

// networkFor is newNetwork, but for the first sandbox without a way out: it is there, or nearly.
func (e *Engine) networkFor(w *wayOut) (join func() (*network, error)) {
	if w == nil {
		if ahead := e.ahead.Swap(nil); ahead != nil {
			return *ahead
		}
	}
	return newNetwork(w)
}

func makeNetwork(w *wayOut) (*network, error) {
	if w == nil {
		ns, err := netns.New()
		return &network{ns: ns}, err
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	return &network{ns: w.gateway.Sandbox, out: w}, nil
}

// wayOut begins the way out of a sandbox that has one. What a spare's is to amount to
// nobody knows yet.
func (s *sandbox) wayOut(m *wire.Message) *wayOut {
	if s.egress == nil {
		return nil
	}
	w := &wayOut{asked: *s.egress, waiting: map[uint64]chan<- protocol.Answer{}}
	if !s.spare {
		s.askProxy(w, m)
	}
	s.undo.add(w.close)
	return w
}

// askProxy has the proxy understand what was asked for.
func (s *sandbox) askProxy(w *wayOut, m *wire.Message) {
	s.e.proxy.Program(m.File(protocol.FileProxy))
	var ask func(name string, port uint16) // nil: nobody
	if w.asked.Ask > 0 {
		ask = s.ask
	}
	w.begin(&s.e.proxy, s.id, m.File(protocol.FileLog), ask)
}

// openNetwork has the sandbox's network served, both ways. admitted says at last whether the
// proxy does, and whether what it is to let through may be.
func (s *sandbox) openNetwork(m *wire.Message) (admitted func() error, _ error) {
	if err := s.net.publish(s.spec.Publish, m); err != nil {
		return nil, err
	}
	w := s.net.out
	if w == nil {
		return func() error { return nil }, nil
	}
	var err error
	over := make(chan struct{})
	go func() { err = w.serve(); close(over) }()
	s.undo.add(func() { <-over }) // or sockets would be closed while they are handed over
	return func() error {
		if <-over; err != nil {
			return err
		}
		plan, err := w.settled()
		if err == nil {
			err = admitPlan(&s.spec, plan)
		}
		return err
	}, nil
}

// publish serves the listeners that came with a create call.
func (n *network) publish(ports []runner.Port, m *wire.Message) error {
	for i, p := range ports {
		f := m.File(protocol.FilePort(i))
		if f == nil {
			return wire.Errorf(wire.CodeInvalid, "publish port %d: no listener came with it", p.To)
		}
		path, isPath := strings.CutPrefix(p.Listen, "unix:")
		if !isPath {
			path = ""
		}
		in, err := inlet.Open(f, path, n.ns, p.To)
		if err != nil {
			return wire.Errorf(wire.CodeInvalid, "publish port %d: %w", p.To, err)
		}
		n.inlets = append(n.inlets, in)
	}
	return nil
}

// started gives up what only PID 1 needed. Ways in go by the namespace.
func (n *network) started() {
	if len(n.inlets) == 0 {
		n.ns.Close()
	}
}

func (n *network) close() {
	for _, i := range n.inlets {
		i.Close()
	}
	n.ns.Close()
}

func (n *network) env(certFile string) []string {
	if n == nil || n.out == nil {
		return nil
	}
	return environ(certFile, n.out.golang != nil, n.out.outlet.Plan().Env)
}

func (n *network) blocked() []runner.Blocked {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.blocked()
}

func (n *network) layers() []runner.Layer {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.layers()
}

// word is the receipt's.
func (n *network) word() string {
	if n == nil || n.out == nil {
		return "none"
	}
	return networkWord(n.out.outlet.Plan())
}

// nameServer is the one a sandbox is told of.
func nameServer(e *runner.Egress) netip.Addr {
	if e == nil {
		return netip.Addr{}
	}
	return netns.DNSAddr().Addr()
}
