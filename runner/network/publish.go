// Publishing joins connections to one of the caller's listeners with a server on the sandbox's loopback.
//
// The caller opened the listener with its own rights, so the caller decides who may connect. The inner connection is
// made in the sandbox's network namespace, to 127.0.0.1 only. It gives the sandbox no egress: its data goes only to
// the peer that connected. This code does not interpret the data. TestEgressPublish in package integration tests the
// whole path.

package network

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"demesne/netns"
)

// Forward joins one listener to one port in a sandbox.
type Forward struct {
	listener net.Listener
	path     string // of a unix socket, else empty
	ns       *netns.NS
	to       netip.AddrPort
	slots    chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool // nil after Close
}

// most bounds the concurrent connections through one Forward.
const most = 256

// Publish takes ownership of a listening socket and serves it until Close. path is the path of a unix socket, which
// Close removes, or empty. ns must stay open until then.
func Publish(listener *os.File, path string, ns *netns.NS, port uint16) (*Forward, error) {
	l, err := net.FileListener(listener)
	listener.Close()
	if err != nil {
		return nil, err
	}
	in := &Forward{
		listener: l, path: path, ns: ns, to: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port),
		slots: make(chan struct{}, most), conns: map[net.Conn]bool{},
	}
	go in.serve()
	return in, nil
}

// serve accepts connections until Close.
func (in *Forward) serve() {
	for {
		c, err := in.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			time.Sleep(10 * time.Millisecond) // probably out of descriptors, until other connections close
			continue
		}
		in.slots <- struct{}{}
		go func() {
			defer func() { <-in.slots }()
			in.join(c)
		}()
	}
}

// join copies both ways between c and the server in the sandbox. If the server does not listen, c is closed.
func (in *Forward) join(c net.Conn) {
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

// half copies one way and passes on the end of the stream.
func half(to, from net.Conn) {
	io.Copy(to, from)
	if w, ok := to.(interface{ CloseWrite() error }); ok {
		w.CloseWrite()
	}
}

func (in *Forward) keep(c net.Conn) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conns == nil {
		c.Close()
		return false
	}
	in.conns[c] = true
	return true
}

func (in *Forward) drop(c net.Conn) {
	c.Close()
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, c)
}

// Left reports whether the path of a unix socket still exists after Close.
func (in *Forward) Left() bool {
	if in.path == "" {
		return false
	}
	_, err := os.Lstat(in.path)
	return !errors.Is(err, os.ErrNotExist)
}

// Close closes the listener and every connection through it, and removes the path of a unix socket.
func (in *Forward) Close() {
	in.listener.Close()
	if in.path != "" {
		os.Remove(in.path) // may be forbidden; the next process that listens there removes it instead
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for c := range in.conns {
		c.Close()
	}
	in.conns = nil
}
