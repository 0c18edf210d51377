// Package inprocess is the API of demesne serve in the process of its only caller, for package demesne/client/local. It is
// no program.
//
// It opens no port and no socket. The runner, which is shared with demesne's other programs, keeps the sandboxes. Events
// are in the audit log of the user, as those of the server are.
package inprocess

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"

	"demesne/client"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/mcp/toolbackend"
	"demesne/runner"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/operate"
	"demesne/server/rest"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/events"
)

// Options are the bounds of all sandboxes, and where messages go.
type Options struct {
	Image     string        // of a sandbox that names none
	Egress    string        // the widest mode
	Limits    client.Limits // what a sandbox has that asks for none, and the most that it gets
	Namespace string        // empty: the user's own sandboxes
	Log       *log.Logger   // nil: log.Default()
}

// Server answers requests of its caller. It is safe for concurrent use.
type Server struct {
	opts    Options
	backend *apibackend.Backend
	operate *operate.Operator
	bus     events.Bus
	mux     http.ServeMux
	caller  server.Caller
	ctx     context.Context
	end     context.CancelFunc

	mu    sync.Mutex
	tools *apibackend.Tools // nil until a job needs them
	done  []func()
}

// New returns a Server, which has not yet connected to the runner. The caller closes it.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = log.Default()
	}
	s := &Server{opts: o, caller: server.Caller{Name: "in-process", Namespace: o.Namespace, Operator: o.Namespace == ""}}
	s.ctx, s.end = context.WithCancel(server.WithCaller(context.Background(), s.caller))
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open opens the audit log and the API.
func (s *Server) open() error {
	dir, err := fsutil.StateDir("audit")
	if err != nil {
		return fmt.Errorf("find audit log: %w", err)
	}
	s.operate, err = operate.New(s.ctx, operate.Options{Dir: dir, Log: s.opts.Log, Version: cmdline.Version, Getenv: getenv}, &s.bus)
	if err != nil {
		return err
	}
	s.done = append(s.done, s.operate.Close)
	l := s.opts.Limits
	var counted server.Queue // without a bound
	s.backend, err = apibackend.New(apibackend.Options{
		Namespace: s.opts.Namespace, Observe: s.operate.Observe, Queue: &counted,
		Bounds: session.Bounds{
			Image: s.opts.Image, Egress: cmp.Or(s.opts.Egress, servecmd.DefaultEgress),
			Limits: runner.Limits{Memory: l.Memory, CPUs: l.CPUs, PIDs: l.PIDs, Disk: l.Disk},
		},
	})
	if err != nil {
		return err
	}
	s.done = append(s.done, s.backend.Close)
	api := rest.New(rest.Options{
		Of: func(context.Context) (rest.Service, error) { return s.backend, nil }, Questions: s.backend.Questions, Jobs: apibackend.Jobs{Of: s.toolsOf, Service: func(string) (*apibackend.Backend, error) { return s.backend, nil }}, Version: cmdline.Version, Log: s.opts.Log,
		Queue: func(ctx context.Context) client.Queue { return client.Queue(counted.State(server.CallerOf(ctx))) },
	})
	s.done = append(s.done, api.Close)
	s.mux.Handle("/v1/", api)
	s.operate.Routes(func(pattern string, h http.HandlerFunc) { s.mux.Handle(pattern, h) })
	return nil
}

// getenv hides the variables that configure traces: those are the program's own.
func getenv(string) string { return "" }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(server.WithCaller(r.Context(), s.caller))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.mux.ServeHTTP(w, r.WithContext(ctx))
}

// toolsOf opens the tools that start jobs.
func (s *Server) toolsOf(string) (*apibackend.Tools, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools != nil || s.ctx.Err() != nil {
		return s.tools, s.ctx.Err()
	}
	b, err := toolbackend.Open(toolbackend.Options{
		Namespace: s.opts.Namespace, Listed: true, Session: session.Options{Getenv: os.Getenv, Observe: s.operate.Observe},
	})
	if err != nil {
		return nil, err
	}
	s.done = append(s.done, b.Close)
	tools, done, err := b.Server(s.ctx, "", s.opts.Log.Writer(), s.opts.Log.Prefix())
	if err != nil {
		return nil, err
	}
	s.done = append(s.done, done)
	s.tools = &apibackend.Tools{Backend: b, Outputs: tools}
	return s.tools, nil
}

// Close ends requests, and closes connections to the runner. Sandboxes and jobs live on. It may be repeated.
func (s *Server) Close() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.done) - 1; i >= 0; i-- {
		s.done[i]()
	}
	s.done = nil
}
