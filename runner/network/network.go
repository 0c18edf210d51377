package network

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"demesne/netns"
	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// Network is the network of one sandbox: its namespace, its egress and its published ports. A nil Network belongs to
// a sandbox without namespaces and egress.
type Network struct {
	NS       *netns.NS // nil: its connections are supervised
	egress   *Egress   // nil: no egress
	forwards []*Forward
}

// Reserve holds what a runner makes before the first request: a network namespace or a gateway, for the first sandbox
// that needs it. It is safe for concurrent use, and the zero value is empty.
type Reserve struct {
	ns      atomic.Pointer[func() (*netns.NS, error)]
	gateway atomic.Pointer[func() (*netns.Gateway, error)]
}

// Begin starts making a gateway, or a network namespace without one.
func (r *Reserve) Begin(gateway bool) {
	if gateway {
		join := begin(Gateway)
		r.gateway.Store(&join)
		return
	}
	join := begin(netns.New)
	r.ns.Store(&join)
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

// first returns the reserved join function, at most once, and otherwise produce.
func first[T any](reserved *atomic.Pointer[func() (T, error)], produce func() (T, error)) func() (T, error) {
	if join := reserved.Swap(nil); join != nil {
		return *join
	}
	return produce
}

// New starts making a network, with egress unless w is nil. join waits for it.
func New(r *Reserve, w *Egress) (join func() (*Network, error)) {
	return begin(func() (*Network, error) {
		if w == nil {
			ns, err := first(&r.ns, netns.New)()
			if err != nil {
				return nil, ipc.Errorf(ipc.CodeRequirement, "%w", err)
			}
			return &Network{NS: ns}, nil
		}
		ns, err := w.Open(first(&r.gateway, Gateway))
		if err != nil {
			return nil, err
		}
		return &Network{NS: ns, egress: w}, nil
	})
}

// Egress returns the egress of n, or nil.
func (n *Network) Egress() *Egress {
	if n == nil {
		return nil
	}
	return n.egress
}

// listener returns the listener of a published port: the one that came with the call, or a new one in another sandbox.
func (n *Network) listener(p runner.Port, theirs *os.File) (*os.File, error) {
	switch {
	case p.Within == "" && theirs == nil:
		return nil, errors.New("the call has no listener")
	case p.Within == "":
		return theirs, nil
	case n.egress == nil || n.egress.groups == nil:
		return nil, errors.New("the sandbox has no group")
	}
	at, err := netip.ParseAddrPort(p.Listen)
	if err != nil {
		return nil, err
	}
	return n.egress.groups.listen(n.egress.member, p.Within, at)
}

// Publish serves the listeners that came with m, one for each port.
func (n *Network) Publish(ports []runner.Port, m *ipc.Message) error {
	for i, p := range ports {
		f, err := n.listener(p, m.File(api.FilePort(i)))
		if err != nil {
			return ipc.Errorf(ipc.CodeInvalid, "publish port %d: %w", p.To, err)
		}
		path, isPath := strings.CutPrefix(p.Listen, "unix:")
		if !isPath {
			path = ""
		}
		in, err := Publish(f, path, n.NS, p.To)
		if err != nil {
			return ipc.Errorf(ipc.CodeInvalid, "publish port %d: %w", p.To, err)
		}
		n.forwards = append(n.forwards, in)
	}
	return nil
}

// Started closes the namespace after PID 1 has joined it, unless published ports need it.
func (n *Network) Started() {
	if len(n.forwards) == 0 {
		n.NS.Close()
	}
}

// Close ends the published ports and closes the namespace. It does not close the egress.
func (n *Network) Close() {
	for _, in := range n.forwards {
		in.Close()
	}
	if n.NS != nil {
		n.NS.Close()
	}
}

// SocketsLeft reports whether a socket of the caller is still in the file system. The runner may not remove those
// of real root.
func (n *Network) SocketsLeft() bool {
	return n != nil && slices.ContainsFunc(n.forwards, (*Forward).Left)
}

// Env returns the environment variables for the sandbox's commands. certFile is as for [Egress.Env].
func (n *Network) Env(certFile string) []string {
	if n.Egress() == nil {
		return nil
	}
	javaStore := ""
	if certFile == rootfs.CertFile {
		javaStore = rootfs.JavaFile
	}
	env := n.egress.Env(certFile, javaStore)
	if n.egress.arrivals != nil {
		env = append(env, resolverByTCP)
	}
	return env
}

// Blocked is [Egress.Blocked] of the sandbox's egress, if it has one.
func (n *Network) Blocked() []runner.Blocked {
	if n.Egress() == nil {
		return nil
	}
	return n.egress.Blocked()
}

// Layers returns the receipt's layers for the network.
func (n *Network) Layers() []runner.Layer {
	if n.Egress() == nil {
		return nil
	}
	return n.egress.Layers()
}

// Word returns the receipt's description of the network.
func (n *Network) Word() string {
	if n.Egress() == nil {
		return "none"
	}
	return n.egress.Word()
}

// NameServer returns the name server in the sandbox's resolv.conf.
func NameServer(e *runner.Egress) netip.Addr {
	if e == nil {
		return netip.Addr{}
	}
	return netns.DNSAddr().Addr()
}
