// Package inlet is a way into a sandbox: it joins connections to a listener of the caller's with a
// server on the sandbox's loopback.
//
// The listener was opened by the caller, with the caller's rights, so who may connect is the
// caller's to say. The connection inside is made in the sandbox's network namespace, to 127.0.0.1
// alone. The sandbox gets no way out by it: what it sends goes to who connected. Nothing here reads
// what passes. TestEgressPublish of integration has the whole way.
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

// Forward is one such listener.
type Forward struct {
	listener net.Listener
	path     string // of a unix socket
	ns       *netns.NS
	to       netip.AddrPort
	slots    chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: closed
}

// most bounds the connections through one inlet at once.
const most = 256

// Publish serves a listening socket, which it takes over, until Close. path is that of a unix socket,
// which goes with it, or empty; ns must stay open as long.
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

// serve accepts until close.
func (in *Forward) serve() {
	for {
		c, err := in.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, most likely: others will be closed
			continue
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

// half copies one way and passes the end on.
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

// Left says whether the path of a unix socket is still taken after Close.
func (in *Forward) Left() bool {
	if in.path == "" {
		return false
	}
	_, err := os.Lstat(in.path)
	return !errors.Is(err, os.ErrNotExist)
}

// Close ends it, and every connection through it.
func (in *Forward) Close() {
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
