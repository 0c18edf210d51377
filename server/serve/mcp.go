package serve

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"demesne/mcp"
	"demesne/mcp/toolbackend"
	"demesne/mcp/toolbackend/runtools"
	"demesne/server"
	"demesne/server/runs"
	"demesne/session"
)

// addMCP adds the tools of demesne-mcp at /mcp.
func (p *program) addMCP(ctx context.Context) error {
	kept, err := runtools.Open()
	if err != nil {
		return err
	}
	if err := p.countRuns(kept); err != nil {
		return err
	}
	t := &tools{program: p, ctx: ctx, runs: kept, sets: map[string]*toolSet{}}
	p.tools = t
	p.closers = append(p.closers, t.close)
	if _, err := t.of(""); err != nil { // what the environment has wrong is an error now
		return err
	}
	p.mux.Handle(mcp.Path, p.access.Handler(ending(ctx, t.serveMCP)))
	for pattern, h := range kept.Routes() {
		p.mux.Handle(pattern, p.access.Handler(ending(ctx, h)))
	}
	for _, pattern := range []string{"OPTIONS /mcp", "OPTIONS /mcp/", "OPTIONS /artifacts/"} {
		p.mux.HandleFunc(pattern, runs.Options)
	}
	go kept.Evict(ctx)
	return nil
}

// ending ends the streams that clients read when the server ends. Other requests are finished.
func ending(ctx context.Context, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			h(w, r)
			return
		}
		during, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		h(w, r.WithContext(during))
	})
}

// tools makes the tools for each namespace that has callers.
type tools struct {
	*program
	ctx  context.Context
	runs *runs.Store

	mu   sync.Mutex
	sets map[string]*toolSet
}

// toolSet is what the callers of one namespace use.
type toolSet struct {
	*toolbackend.Backend
	mcp  *mcp.Server
	http http.Handler
	done func()
}

// of returns the tools of a namespace, which it makes if necessary.
func (t *tools) of(namespace string) (*toolSet, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.sets[namespace]; f != nil {
		return f, nil
	}
	policy, err := t.forModels(namespace)
	if err != nil {
		return nil, err
	}
	b, err := toolbackend.Open(toolbackend.Options{
		Session: session.Options{Getenv: t.setting, Observe: t.operate.Observe, MostSandboxes: policy.MaxSandboxes},
		Policy:  policy, Namespace: namespace, Listed: true, Runs: t.runs, Host: t.host, Queue: t.queue,
	})
	if err != nil {
		return nil, err
	}
	s, done, err := b.Server(t.ctx, t.options.Tools, t.log.Writer(), t.log.Prefix())
	if err != nil {
		b.Close()
		return nil, err
	}
	f := &toolSet{Backend: b, mcp: s, http: s.Endpoint(), done: done}
	t.sets[namespace] = f
	return f, nil
}

// toolsFor returns the tools of a request's caller, or answers with an error.
func (t *tools) toolsFor(w http.ResponseWriter, r *http.Request) *toolSet {
	f, err := t.of(server.CallerOf(r.Context()).Namespace)
	if err != nil {
		t.log.Print(err)
		server.Refuse(w, http.StatusInternalServerError, "the tools are not available")
		return nil
	}
	return f
}

// serveMCP serves MCP. A request that no MCP client sends gets what mcp-sandboxd answers.
func (t *tools) serveMCP(w http.ResponseWriter, r *http.Request) {
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

// close ends the sessions and connections of all namespaces. Sandboxes and jobs live on.
func (t *tools) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.sets {
		f.done()
		f.Close()
	}
}
