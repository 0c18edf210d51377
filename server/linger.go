package server

import (
	"context"
	"net"
	"sync"
	"time"
)

// Lingering returns l, and a context that ends when l has had no connection for so long.
func Lingering(ctx context.Context, l net.Listener, long time.Duration) (net.Listener, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	g := &lingering{Listener: l, long: long}
	g.end = time.AfterFunc(long, cancel)
	return g, ctx
}

type lingering struct {
	net.Listener
	long time.Duration

	mu   sync.Mutex
	open int
	end  *time.Timer
}

func (g *lingering) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open++
	g.end.Stop()
	return &lingeringConn{Conn: c, of: g}, nil
}

type lingeringConn struct {
	net.Conn
	of   *lingering
	once sync.Once
}

// NetConn returns the connection itself, whose peer the kernel knows.
func (c *lingeringConn) NetConn() net.Conn { return c.Conn }

func (c *lingeringConn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if c.of.open--; c.of.open == 0 {
			c.of.end.Reset(c.of.long)
		}
	})
	return c.Conn.Close()
}
