package engine

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// inlet joins a listener of the caller's to a server on the sandbox's loopback. The
// sandbox gets no way out by it: what it sends goes to who connected.
type inlet struct {
	listener net.Listener
	path     string // of a unix socket
	ns       *netns.NS
	to       netip.AddrPort
	slots    chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: closed
}

// maxInlet bounds the connections through one inlet at once.
const maxInlet = 256

// publish serves the listeners that came with a create call.
func (n *network) publish(ports []runner.Port, m *wire.Message) error {
	for i, p := range ports {
		f := m.File(protocol.FilePort(i))
		if f == nil {
			return wire.Errorf(wire.CodeInvalid, "publish port %d: no listener came with it", p.To)
		}
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return wire.Errorf(wire.CodeInvalid, "publish port %d: %w", p.To, err)
		}
		in := &inlet{
			listener: l, ns: n.ns, to: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.To),
			slots: make(chan struct{}, maxInlet), conns: map[net.Conn]bool{},
		}
		in.path, _ = strings.CutPrefix(p.Listen, "unix:")
		n.inlets = append(n.inlets, in)
		go in.serve()
	}
	return nil
}

// serve accepts until close.
func (in *inlet) serve() {
	for {
		c, err := in.listener.Accept()
		if err != nil {
			return
		}
		in.slots <- struct{}{}
		go func() {
			defer func() { <-in.slots }()
			in.join(c)
		}()
	}
}

// join copies both ways between c and the server inside. A server that is not there
// shows as a connection that ends.
func (in *inlet) join(c net.Conn) {
	if !in.keep(c) {
		return
	}
	defer in.drop(c)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	inside, err := in.ns.DialTCP(ctx, in.to)
	if err != nil || !in.keep(inside) {
		return
	}
	defer in.drop(inside)
	done := make(chan struct{})
	go func() { half(inside, c); close(done) }()
	half(c, inside)
	<-done
}

// half copies one way and passes the end on.
func half(to, from net.Conn) {
	io.Copy(to, from)
	if w, ok := to.(interface{ CloseWrite() error }); ok {
		w.CloseWrite()
	}
}

func (in *inlet) keep(c net.Conn) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conns == nil {
		c.Close()
		return false
	}
	in.conns[c] = true
	return true
}

func (in *inlet) drop(c net.Conn) {
	c.Close()
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, c)
}

func (in *inlet) close() {
	in.listener.Close()
	if in.path != "" {
		os.Remove(in.path) // where we may: the next one to listen there does it otherwise
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for c := range in.conns {
		c.Close()
	}
	in.conns = nil
}
