package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp"
	"demesne/mcp/work"
	"demesne/runner"
)

// slow is an engine that takes its time.
type slow struct {
	work.Engine
	takes time.Duration
}

func (s slow) Script(ctx context.Context, _ work.Request, _ work.Watch) (*work.Outcome, error) {
	select {
	case <-time.After(s.takes):
		return &work.Outcome{Stdout: work.Tail{Text: "late", Bytes: 4}, Result: &runner.Result{Reason: runner.Exited}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipes is a listener in memory: what waits on it waits by the clock of a bubble.
type pipes struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.closed, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }
func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

// TestHTTPPatience: by a clock that is made to run, nothing in the server gives up a call that takes 48 hours and is silent for an
// hour at a time.
func TestHTTPPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounts, err := mcp.NewMounts(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s := mcp.New(slow{takes: 48*time.Hour - time.Second}, mcp.Options{Version: "1", Mounts: mounts, Images: []string{"host"}, Image: "host", Egress: []string{"none", "package-managers"}, Heartbeat: time.Hour})
		ctx, end := context.WithCancel(context.Background())
		l, served := newPipes(), make(chan error, 1)
		go func() { served <- serveHTTP(ctx, s, l, mcp.HTTPOptions{}) }()

		web := &http.Transport{DialContext: l.dial}
		cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: "http://localhost" + mcp.Path, HTTPClient: &http.Client{Transport: web}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: map[string]any{"command": "x"}})
		if took := time.Since(began); err != nil || r.IsError || took < 47*time.Hour {
			t.Errorf("after %v: %+v, %v", took, r.Content[0], err)
		}
		cs.Close()
		web.CloseIdleConnections()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
