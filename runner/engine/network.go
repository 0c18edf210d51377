package engine

import (
	"net/netip"

	"demesne/netns"
	"demesne/proxy"
	"demesne/runner"
	"demesne/runner/wire"
)

// network is the namespace a sandbox is in, its way out if it has one, and the ways in.
// A nil network, of a sandbox without namespaces, is none of these.
type network struct {
	ns     *netns.NS
	outlet *outlet // nil: none
	inlets []*inlet
}

// newNetwork starts making a network, with a way out unless that is nil; join waits for
// it.
func newNetwork(o *outlet) (join func() (*network, error)) {
	type made struct {
		net *network
		err error
	}
	ch := make(chan made, 1)
	go func() {
		net, err := makeNetwork(o)
		ch <- made{net, err}
	}()
	return func() (*network, error) {
		m := <-ch
		return m.net, m.err
	}
}

func makeNetwork(o *outlet) (*network, error) {
	if o == nil {
		ns, err := netns.New()
		return &network{ns: ns}, err
	}
	if err := o.open(); err != nil {
		return nil, err
	}
	return &network{ns: o.gateway.Sandbox, outlet: o}, nil
}

// wayOut makes the outlet of a sandbox that has one.
func (s *sandbox) wayOut(m *wire.Message) (*outlet, error) {
	if s.egress == nil {
		return nil, nil
	}
	var ask proxy.Approver // nil: nobody
	if s.spec.Egress.Ask > 0 {
		ask = s.ask
	}
	o, err := newOutlet(s.id, s.egress, m.File(runner.FileLog), ask)
	if err == nil {
		s.undo.add(o.close)
	}
	return o, err
}

// openNetwork starts what serves the sandbox's network.
func (s *sandbox) openNetwork(m *wire.Message) error {
	if s.net.outlet != nil {
		if err := s.net.outlet.serve(); err != nil {
			return err
		}
	}
	return s.net.publish(s.spec.Publish, m)
}

// started gives up what only PID 1 needed. Ways in go by the namespace.
func (n *network) started() {
	if len(n.inlets) == 0 {
		n.ns.Close()
	}
}

func (n *network) close() {
	for _, i := range n.inlets {
		i.close()
	}
	n.ns.Close()
}

func (n *network) env(certFile string) []string {
	if n == nil || n.outlet == nil {
		return nil
	}
	return n.outlet.env(certFile)
}

func (n *network) blocked() []runner.Blocked {
	if n == nil || n.outlet == nil {
		return nil
	}
	return n.outlet.blocked()
}

func (n *network) layers() []runner.Layer {
	if n == nil || n.outlet == nil {
		return nil
	}
	return n.outlet.layers()
}

// word is the receipt's.
func (n *network) word() string {
	if n == nil || n.outlet == nil {
		return "none"
	}
	return n.outlet.allowed().network()
}

// nameServer is the one a sandbox is told of.
func nameServer(e *egress) netip.Addr {
	if e == nil {
		return netip.Addr{}
	}
	return netns.DNSAddr().Addr()
}
