package engine

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"demesne/netns"
	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/network"

	"demesne/runner/ipc"
)

// sandboxNetwork is the network namespace of a sandbox, its egress and its published ports. It is nil for a sandbox
// without namespaces.
type sandboxNetwork struct {
	ns     *netns.NS
	out    *network.Egress // nil: no egress
	inlets []*network.Forward
}

// ahead holds what the runner makes before the first request: a network namespace or a gateway, for the first
// sandbox that needs it.
type ahead struct {
	ns      atomic.Pointer[func() (*netns.NS, error)]
	gateway atomic.Pointer[func() (*netns.Gateway, error)]
}

func (a *ahead) begin(gateway bool) {
	if gateway {
		join := begin(network.Gateway)
		a.gateway.Store(&join)
		return
	}
	join := begin(netns.New)
	a.ns.Store(&join)
}

// begin runs produce on a goroutine of its own. join waits for its results.
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

// first returns the prepared join function, at most once, and otherwise produce.
func first[T any](there *atomic.Pointer[func() (T, error)], produce func() (T, error)) func() (T, error) {
	if join := there.Swap(nil); join != nil {
		return *join
	}
	return produce
}

// newNetwork starts making a network, with egress unless w is nil. join waits for it.
func (e *Engine) newNetwork(w *network.Egress) (join func() (*sandboxNetwork, error)) {
	return begin(func() (*sandboxNetwork, error) {
		if w == nil {
			ns, err := first(&e.ahead.ns, netns.New)()
			if err != nil {
				return nil, lacking(err)
			}
			return &sandboxNetwork{ns: ns}, nil
		}
		ns, err := w.Open(first(&e.ahead.gateway, network.Gateway))
		if err != nil {
			return nil, err
		}
		return &sandboxNetwork{ns: ns, out: w}, nil
	})
}

// wayOut begins the egress of a sandbox that has one. The rules of a prepared sandbox are not yet known.
func (s *sandbox) wayOut(m *ipc.Message) *network.Egress {
	if s.egress == nil {
		return nil
	}
	w := network.NewEgress(*s.egress)
	if !s.spare {
		s.askProxy(w, m)
	}
	s.undo.add(w.Close)
	return w
}

// askProxy sends the requested rules to the proxy.
func (s *sandbox) askProxy(w *network.Egress, m *ipc.Message) {
	s.e.proxy.Program(m.File(api.FileProxy))
	var ask func(name string, port uint16) // nil: there are no questions
	if s.egress.Ask > 0 {
		ask = s.ask
	}
	w.Begin(&s.e.proxy, s.id, *s.egress, m.File(api.FileLog), ask)
}

// openNetwork starts serving the sandbox's network in both directions. admitted waits for the proxy and then
// reports whether it serves and whether its rules are permitted for the sandbox.
func (s *sandbox) openNetwork(m *ipc.Message) (admitted func() error, _ error) {
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
	s.undo.add(func() { <-over }) // otherwise sockets would be closed while they are handed over
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
func (n *sandboxNetwork) publish(ports []runner.Port, m *ipc.Message) error {
	for i, p := range ports {
		f := m.File(api.FilePort(i))
		if f == nil {
			return ipc.Errorf(ipc.CodeInvalid, "publish port %d: the call has no listener", p.To)
		}
		path, isPath := strings.CutPrefix(p.Listen, "unix:")
		if !isPath {
			path = ""
		}
		in, err := network.Publish(f, path, n.ns, p.To)
		if err != nil {
			return ipc.Errorf(ipc.CodeInvalid, "publish port %d: %w", p.To, err)
		}
		n.inlets = append(n.inlets, in)
	}
	return nil
}

// started closes what only PID 1 needed. Published ports need the namespace.
func (n *sandboxNetwork) started() {
	if len(n.inlets) == 0 {
		n.ns.Close()
	}
}

func (n *sandboxNetwork) close() {
	for _, i := range n.inlets {
		i.Close()
	}
	n.ns.Close()
}

// socketsLeft reports whether a socket of the caller is still in the file system. The runner may not remove those
// of real root.
func (n *sandboxNetwork) socketsLeft() bool {
	return n != nil && slices.ContainsFunc(n.inlets, (*network.Forward).Left)
}

func (n *sandboxNetwork) env(certFile string) []string {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.Env(certFile, rootfs.JavaFile)
}

func (n *sandboxNetwork) blocked() []runner.Blocked {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.Blocked()
}

func (n *sandboxNetwork) layers() []runner.Layer {
	if n == nil || n.out == nil {
		return nil
	}
	return n.out.Layers()
}

// word returns the receipt's description of the network.
func (n *sandboxNetwork) word() string {
	if n == nil || n.out == nil {
		return "none"
	}
	return n.out.Word()
}

// nameServer returns the name server in the sandbox's resolv.conf.
func nameServer(e *runner.Egress) netip.Addr {
	if e == nil {
		return netip.Addr{}
	}
	return netns.DNSAddr().Addr()
}
