package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner"
	"demesne/server"
)

// published are the ports that this server publishes. They end with it.
type published struct {
	mu  sync.Mutex
	all []*forward
}

// forward is a listener whose connections go to a port of a sandbox.
type forward struct {
	client.Port
	sandbox  string // id
	listener net.Listener
	dial     func(context.Context) (io.ReadWriteCloser, error)
	end      context.CancelFunc
}

// Bounds of ports.
const (
	maxPorts = 32  // of one sandbox
	maxConns = 256 // of one port
)

// publishAt is where ports listen. Browsers send the cookies of 127.0.0.1 to each of its ports, and would therefore send this
// server's cookies to a program in a sandbox.
const publishAt = "127.0.0.2:0"

// portAPI has the handlers of ports.
type portAPI struct{ *Server }

func (s *Server) portRoutes() {
	h := portAPI{s}
	within(s, operation("list-ports", http.MethodGet, "/sandboxes/{id}/ports", "Ports", "List the published ports of a sandbox"), h.listPorts)
	add := operation("publish-port", http.MethodPost, "/sandboxes/{id}/ports", "Ports", "Publish a port of a sandbox on the server's machine")
	add.DefaultStatus = http.StatusCreated
	within(s, add, h.publishPort)
	huma.Register(s.api, operation("unpublish-port", http.MethodDelete, "/sandboxes/{id}/ports/{port}", "Ports", "Publish a port no more"), h.unpublishPort)
}

func (s portAPI) listPorts(_ context.Context, info *runner.Info, _ *Named) (client.Page[client.Port], error) {
	return page(s.portsOf(info.ID, sandboxOf(info).Ports)), nil
}

// portsOf returns more and the ports that this server publishes.
func (s portAPI) portsOf(id string, more []client.Port) []client.Port {
	all := append([]client.Port{}, more...)
	s.published.mu.Lock()
	defer s.published.mu.Unlock()
	for _, f := range s.published.all {
		if f.sandbox == id {
			all = append(all, f.Port)
		}
	}
	return all
}

func (s portAPI) publishPort(ctx context.Context, info *runner.Info, in *inSandbox[client.PortRequest]) (p client.Port, err error) {
	port, caller, service := in.Body.To, server.CallerOf(ctx), s.service(ctx)
	f, err := s.published.add(info.ID, port, func(ctx context.Context) (io.ReadWriteCloser, error) {
		sb, err := service.Open(server.WithCaller(ctx, caller), info.ID)
		if err != nil {
			return nil, err
		}
		return sb.Dial(ctx, port)
	})
	if err != nil {
		return p, err
	}
	if _, err := s.find(ctx, info.ID); err != nil { // a removal ends only the ports that it finds
		s.published.remove(func(other *forward) bool { return other == f })
		return p, err
	}
	return f.Port, nil
}

// portInput names a published port.
type portInput struct {
	Named
	Port uint16 `path:"port" minimum:"1" doc:"Port on the sandbox's loopback"`
}

func (s portAPI) unpublishPort(ctx context.Context, in *portInput) (*struct{}, error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !s.published.remove(func(f *forward) bool { return f.sandbox == info.ID && f.To == in.Port }) {
		return nil, problem(http.StatusNotFound, "this server does not publish the port")
	}
	return nil, nil
}

// add publishes a port. A port that is published already keeps its address.
func (p *published) add(sandbox string, port uint16, dial func(context.Context) (io.ReadWriteCloser, error)) (*forward, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, f := range p.all {
		if f.sandbox != sandbox {
			continue
		}
		if n++; f.To == port {
			return f, nil
		}
	}
	if n >= maxPorts {
		return nil, problem(http.StatusConflict, "a sandbox has at most "+strconv.Itoa(maxPorts)+" published ports")
	}
	l, err := net.Listen("tcp", publishAt)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &forward{Port: client.Port{Listen: l.Addr().String(), To: port}, sandbox: sandbox, listener: l, dial: dial, end: cancel}
	p.all = append(p.all, f)
	go f.serve(ctx)
	return f, nil
}

// remove ends the ports that which selects, with their connections. It reports whether there was one.
func (p *published) remove(which func(*forward) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.all)
	p.all = slices.DeleteFunc(p.all, func(f *forward) bool {
		if !which(f) {
			return false
		}
		f.listener.Close()
		f.end()
		return true
	})
	return len(p.all) < n
}

func (f *forward) serve(ctx context.Context) {
	turns := make(chan struct{}, maxConns)
	for {
		c, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue
		}
		select {
		case turns <- struct{}{}:
		default:
			c.Close()
			continue
		}
		go func() {
			defer func() { <-turns }()
			f.carry(ctx, c)
		}()
	}
}

// halfClosed is how long the answer may go on after a client has sent everything.
const halfClosed = 5 * time.Minute

// carry copies between a connection and the sandbox's port until the sandbox's side ends, or the connection breaks.
func (f *forward) carry(ctx context.Context, c net.Conn) {
	defer c.Close()
	inside, err := f.dial(ctx)
	if err != nil {
		return
	}
	defer inside.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { inside.Close(); c.Close() })()
	go func() {
		_, err := io.Copy(inside, c)
		half, ok := inside.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			cancel()
			return
		}
		time.AfterFunc(halfClosed, cancel)
	}()
	io.Copy(c, inside)
}
