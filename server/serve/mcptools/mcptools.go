// Package mcptools serves the tools of demesne-mcp at /mcp, with a set of tools for each namespace that has callers.
package mcptools

import (
	"context"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"

	"demesne/mcp"
	"demesne/mcp/toolbackend"
	"demesne/mcp/toolbackend/runtools"
	"demesne/server"
	"demesne/server/apibackend/apijobs"
	"demesne/server/hostcmd"
	"demesne/server/hostcmd/hostaccess"
	"demesne/server/runs"
	"demesne/server/serve/settings"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/events"
)

// Options are shared by the tools of all namespaces.
type Options struct {
	Settings *servecmd.Options
	Observe  func(context.Context, events.Event) // see session.Options
	Queue    *server.Queue                       // of commands
	Host     hostaccess.Options                  // without a Policy callers get nothing of this machine
	Log      *log.Logger
	Counter  interface { // counts the runs that go on
		RunBegan()
		RunEnded(failed, canceled bool)
	}
}

// Tools makes the tools for each namespace.
type Tools struct {
	Host *hostcmd.Guard // of all callers; nil: none
	opts Options
	ctx  context.Context
	runs *runs.Store

	mu   sync.Mutex
	sets map[string]*toolSet
}

// New opens the tools, and the runs that earlier servers started, until ctx ends. The caller calls Close.
func New(ctx context.Context, o Options) (t *Tools, err error) {
	t = &Tools{opts: o, ctx: ctx, sets: map[string]*toolSet{}}
	if o.Host.Policy != "" {
		if t.Host, err = hostaccess.Open(toolbackend.HostOptions(o.Host)); err != nil {
			return nil, err
		}
	}
	t.runs, err = runtools.Open()
	if err == nil {
		err = t.countRuns()
	}
	if err == nil {
		_, err = t.of("") // what the environment has wrong is an error now
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	go t.runs.Evict(ctx)
	return t, nil
}

// Routes passes each route with its handler to add, or to open if it needs no token.
func (t *Tools) Routes(add, open func(pattern string, h http.Handler)) {
	add(mcp.Path, t.ending(t.serveMCP))
	for pattern, h := range t.runs.Routes() {
		add(pattern, t.ending(h))
	}
	for _, pattern := range []string{"OPTIONS /mcp", "OPTIONS /mcp/", "OPTIONS /artifacts/"} {
		open(pattern, http.HandlerFunc(runs.Options))
	}
}

// ending ends the streams that clients read when the server ends. Other requests are finished.
func (t *Tools) ending(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			h(w, r)
			return
		}
		during, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(t.ctx, cancel)()
		h(w, r.WithContext(during))
	})
}

// toolSet has the tools for the callers of one namespace.
type toolSet struct {
	*toolbackend.Backend
	mcp  *mcp.Server
	http http.Handler
	done func()
}

// of returns the tools of a namespace, which it makes if necessary.
func (t *Tools) of(namespace string) (*toolSet, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.sets[namespace]; f != nil {
		return f, nil
	}
	policy, err := settings.Models(t.opts.Settings, namespace)
	if err != nil {
		return nil, err
	}
	b, err := toolbackend.Open(toolbackend.Options{
		Session: session.Options{Getenv: settings.Getenv(t.opts.Settings), Observe: t.opts.Observe, MostSandboxes: policy.MaxSandboxes},
		Policy:  policy, Namespace: namespace, Listed: true, Runs: t.runs, Host: t.Host, Queue: t.opts.Queue,
	})
	if err != nil {
		return nil, err
	}
	s, done, err := b.Server(t.ctx, t.opts.Settings.Tools, t.opts.Log.Writer(), t.opts.Log.Prefix())
	if err != nil {
		b.Close()
		return nil, err
	}
	f := &toolSet{Backend: b, mcp: s, http: s.Endpoint(), done: done}
	t.sets[namespace] = f
	return f, nil
}

// For returns the tools of the callers of a namespace.
func (t *Tools) For(namespace string) (*apijobs.Tools, error) {
	f, err := t.of(namespace)
	if err != nil {
		return nil, err
	}
	return &apijobs.Tools{Backend: f.Backend, Outputs: f.mcp}, nil
}

// toolsFor returns the tools of a request's caller, or answers with an error.
func (t *Tools) toolsFor(w http.ResponseWriter, r *http.Request) *toolSet {
	f, err := t.of(server.CallerOf(r.Context()).Namespace)
	if err != nil {
		t.opts.Log.Print(err)
		server.Refuse(w, http.StatusInternalServerError, "the tools are not available")
		return nil
	}
	return f
}

// serveMCP serves MCP. A request that no MCP client sends gets what mcp-sandboxd answers.
func (t *Tools) serveMCP(w http.ResponseWriter, r *http.Request) {
	stream := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	switch {
	case r.Method == http.MethodDelete && r.Header.Get("Mcp-Session-Id") == "":
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && !stream:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, mcpInfo)
	default:
		if f := t.toolsFor(w, r); f != nil {
			f.http.ServeHTTP(w, r)
		}
	}
}

// mcpInfo tells a person with a browser what the endpoint is.
const mcpInfo = `{"message":"This is an MCP endpoint (streamable HTTP): POST JSON-RPC messages.","mcp_path":"/mcp",` +
	`"examples":{"tools_list":{"method":"POST","path":"/mcp","body":{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}}}}` + "\n"

// Close ends the sessions and connections of all namespaces. Sandboxes and jobs live on.
func (t *Tools) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.sets {
		f.done()
		f.Close()
	}
	if t.Host != nil {
		t.Host.Close()
	}
}

// countRuns counts runs, also those that an earlier server started.
func (t *Tools) countRuns() error {
	t.runs.Observe = func(_ runs.Request, e runs.Event) {
		switch e.Kind {
		case "run_started":
			t.opts.Counter.RunBegan()
		case "run_finished", "run_failed":
			t.opts.Counter.RunEnded(e.Kind == "run_failed", e.Data.Canceled)
		}
	}
	n, err := t.runs.Resume()
	for range n {
		t.opts.Counter.RunBegan()
	}
	return err
}
