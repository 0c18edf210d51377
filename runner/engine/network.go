package engine

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"demesne/netns"
	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/inlet"
	"demesne/runner/protocol"
	"demesne/runner/wayout"
	"demesne/runner/wire"
)

// network is the namespace a sandbox is in, its way out if it has one, and the ways in.
// A nil network, of a sandbox without namespaces, is none of these.
type network struct {
	ns     *netns.NS
	out    *wayout.Way // nil: none
	inlets []*inlet.Inlet
}

// ahead is what the runner begins to make before it is asked for anything: one of the two, for the
// first sandbox that is of that kind.
type ahead struct {
	ns      atomic.Pointer[func() (*netns.NS, error)]
	gateway atomic.Pointer[func() (*netns.Gateway, error)]
}

func (a *ahead) begin(gateway bool) {
	if gateway {
		join := begin(wayout.Gateway)
		a.gateway.Store(&join)
		return
	}
	join := begin(netns.New)
	a.ns.Store(&join)
}

// begin has produce work on a goroutine of its own; join waits for what it gives.
func begin[T any](produce func() (T, error)) (join func() (T, error)) {
	var v T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = produce()
	}()
	return func() (T, error) {
		<-done
		return v, err
	}
}

// first takes what there is ahead, or else produce.
func first[T any](there *atomic.Pointer[func() (T, error)], produce func() (T, error)) func() (T, error) {
	if join := there.Swap(nil); join != nil {
		return *join
	}
	return produce
}

// newNetwork starts making a network, with a way out unless that is nil; join waits for
// it.
func (e *Engine) newNetwork(w *wayout.Way) (join func() (*network, error)) {
	return begin(func() (*network, error) {
		if w == nil {
			ns, err := first(&e.ahead.ns, netns.New)()
			if err != nil {
				return nil, lacking(err)
			}
			return &network{ns: ns}, nil
		}
		ns, err := w.Open(first(&e.ahead.gateway, wayout.Gateway))
		if err != nil {
			return nil, err
		}
		return &network{ns: ns, out: w}, nil
	})
}

// wayOut begins the way out of a sandbox that has one. What a spare's is to amount to
// nobody knows yet.
func (s *sandbox) wayOut(m *wire.Message) *wayout.Way {
	if s.egress == nil {
		return nil
	}
	w := wayout.New(*s.egress)
	if !s.spare {
		s.askProxy(w, m)
	}
	s.undo.add(w.Close)
	return w
}

// askProxy has the proxy understand what was asked for.
func (s *sandbox) askProxy(w *wayout.Way, m *wire.Message) {
	s.e.proxy.Program(m.File(protocol.FileProxy))
	var ask func(name string, port uint16) // nil: nobody
	if s.egress.Ask > 0 {
		ask = s.ask
	}
	w.Begin(&s.e.proxy, s.id, *s.egress, m.File(protocol.FileLog), ask)
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
	go func() { err = w.Serve(); close(over) }()
	s.undo.add(func() { <-over }) // or sockets would be closed while they are handed over
	return func() error {
		if <-over; err != nil {
			return err
		}
		plan, err := w.Settled()
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

// socketsLeft says whether a socket that the caller listened on is still there: we may not remove real root's.
func (n *network) socketsLeft() bool {
	return n != nil && slices.ContainsFunc(n.inlets, (*inlet.Inlet).Left)
}

func (n *network) env(certFile string) []string {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.Env(certFile, rootfs.JavaFile)
}

func (n *network) blocked() []runner.Blocked {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.Blocked()
}

func (n *network) layers() []runner.Layer {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.Layers()
}

// word is the receipt's.
func (n *network) word() string {
	if n == nil || n.out == nil {
		return "none"
	}
	return n.out.Word()
}

// nameServer is the one a sandbox is told of.
func nameServer(e *runner.Egress) netip.Addr {
	if e == nil {
		return netip.Addr{}
	}
	return netns.DNSAddr().Addr()
}
