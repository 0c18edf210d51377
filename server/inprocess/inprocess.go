// Package inprocess has the API of package demesne/client in this process: no server, no port, no token.
//
//	c, err := inprocess.New(inprocess.Options{})
//	defer c.Close()
//	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "echo hello"}})
//
// A request passes in memory to the handlers of demesne serve, so that every method does what it does over HTTP.
//
// # What it needs
//
// demesne's programs do the work: demesne-runner keeps the sandboxes, demesne-images fetches images. The package looks for
// them in $DEMESNE_LIBEXEC, or else beside this program and in ../libexec/demesne. The other variables of
// docs/reference/environment.md apply too, as for the command line, which sees the same sandboxes. The programs must be of
// the version of this package.
//
// # What it shares
//
// The sandboxes, jobs and images belong to this process's user. Persistent sandboxes and jobs live on when the process
// ends; a command that a request runs ends with it. The package appends events to the user's audit log. It sets
// huma.NewError of github.com/danielgtaylor/huma/v2, which that library has once for a process.
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
	"demesne/mcp/toolbackend"
	"demesne/runner"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/apibackend/apijobs"
	"demesne/server/operate"
	"demesne/server/rest"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/audit"
	"demesne/session/events"
)

// Options are the bounds of every sandbox of a Client. The zero value is demesne serve's default.
type Options struct {
	Image  string        // of a sandbox that names none; empty: $DEMESNE_DEFAULT_IMAGE, or host
	Egress string        // the widest mode that a request may name: none, package-managers or open; empty: open
	Limits client.Limits // of a sandbox that asks for none, and the most that one may ask for; zero: the usual ones
	// AllowedMounts are the directories of this machine that sandboxes may mount, with what is below them: DIR read-only, DIR:rw
	// also writable. The paths of requests have no symbolic links.
	AllowedMounts []string
	// Namespace keeps the sandboxes, jobs and secrets of this Client apart from other namespaces'. Empty: it has the user's
	// own, and sees all.
	Namespace string
	Log       *log.Logger // messages, one line each; nil: log.Default()
}

// Client is a [client.Client] with its own server.
type Client struct {
	*client.Client
	service *service
}

// New returns a Client that works in this process. It does not connect to the runner yet. The caller closes it, which ends
// requests and streams.
func New(o Options) (*Client, error) {
	s, err := newService(o)
	if err != nil {
		return nil, fmt.Errorf("open sandboxes: %w", err)
	}
	c, err := client.New(client.Options{URL: "http://in-process", HTTP: &http.Client{Transport: transport{s}}})
	if err != nil {
		s.Close()
		return nil, err
	}
	return &Client{c, s}, nil
}

// Close ends requests, and closes connections to the runner. Sandboxes and jobs live on. It may be repeated.
func (c *Client) Close() error {
	c.service.Close()
	return c.Client.Close()
}

// service answers requests of its caller. It is safe for concurrent use.
type service struct {
	opts    Options
	backend *apibackend.Backend
	operate *operate.Operator
	bus     events.Bus
	mux     http.ServeMux
	caller  server.Caller
	ctx     context.Context
	end     context.CancelFunc

	mu    sync.Mutex
	tools *apijobs.Tools // nil until a job needs them
	done  []func()
}

// newService returns a service, which has not yet connected to the runner. The caller closes it.
func newService(o Options) (*service, error) {
	if o.Log == nil {
		o.Log = log.Default()
	}
	s := &service{opts: o, caller: server.Caller{Name: "in-process", Namespace: o.Namespace, Operator: o.Namespace == ""}}
	s.ctx, s.end = context.WithCancel(server.WithCaller(context.Background(), s.caller))
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open opens the audit log and the API.
func (s *service) open() error {
	dir, err := audit.DefaultDir()
	if err != nil {
		return err
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
			Limits: runner.Limits{Memory: l.Memory, CPUs: l.CPUs, PIDs: l.PIDs, Disk: l.Disk}, AllowedMounts: s.opts.AllowedMounts,
		},
	})
	if err != nil {
		return err
	}
	s.done = append(s.done, s.backend.Close)
	api := rest.New(rest.Options{
		Of: func(context.Context) (rest.Service, error) { return s.backend, nil }, Questions: s.backend.Questions, Jobs: apijobs.Jobs{Of: s.toolsOf, Service: func(string) (*apibackend.Backend, error) { return s.backend, nil }}, Version: cmdline.Version, Log: s.opts.Log,
		Queue: counted.State,
	})
	s.done = append(s.done, api.Close)
	s.mux.Handle("/v1/", api)
	s.operate.Routes(func(pattern string, h http.HandlerFunc) { s.mux.Handle(pattern, h) })
	return nil
}

// getenv hides the variables that configure traces: those are the program's own.
func getenv(string) string { return "" }

// ServeHTTP answers one request.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(server.WithCaller(r.Context(), s.caller))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.mux.ServeHTTP(w, r.WithContext(ctx))
}

// toolsOf opens the tools that start jobs.
func (s *service) toolsOf(string) (*apijobs.Tools, error) {
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
	s.tools = &apijobs.Tools{Backend: b, Outputs: tools}
	return s.tools, nil
}

// Close ends requests, and closes connections to the runner. Sandboxes and jobs live on. It may be repeated.
func (s *service) Close() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.done) - 1; i >= 0; i-- {
		s.done[i]()
	}
	s.done = nil
}
