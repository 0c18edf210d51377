package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"demesne/client"
	"demesne/runner"
	"demesne/server"
)

// Spaces serves the callers of several namespaces, each by a [Server] with records of its own. So no call finds a sandbox,
// snapshot, template, secret or volume of another namespace. Calls without a key carry a token of their own: a request for a
// sandbox, a volume or an upload goes to the Server that owns it.
type Spaces struct {
	opts Options
	fill func(*Options) error

	mu  sync.Mutex
	all map[string]*Server // by namespace; "": the operator's
}

// spaceDir holds the directories of namespaces in the operator's.
const spaceDir = "namespaces"

// NewSpaces returns the Servers of the operator and of all namespaces that have records. fill sets the Backend and the
// Vault of a namespace, which the options name.
func NewSpaces(ctx context.Context, o Options, fill func(*Options) error) (*Spaces, error) {
	s := &Spaces{opts: o, fill: fill, all: map[string]*Server{}}
	names := []string{""}
	entries, err := os.ReadDir(filepath.Join(o.State, spaceDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open state: %w", err)
	}
	for _, e := range entries {
		if runner.IsNamespace(e.Name()) {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		if _, err := s.open(ctx, name); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// open returns the Server of a namespace. The caller's token has proved the name.
func (s *Spaces) open(ctx context.Context, namespace string) (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[namespace]; one != nil {
		return one, nil
	}
	o := s.opts
	if o.Namespace = namespace; namespace != "" {
		o.State = filepath.Join(o.State, spaceDir, namespace)
	}
	if o.QuotaOf != nil {
		o.Quota = o.QuotaOf(namespace)
	}
	if err := s.fill(&o); err != nil {
		return nil, err
	}
	one, err := New(context.WithoutCancel(ctx), o)
	if err == nil {
		s.all[namespace] = one
	}
	return one, err
}

// Close stops the timers. The sandboxes live on.
func (s *Spaces) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		one.Close()
	}
}

// Credentials returns the credentials of a sandbox of a namespace that is restarted, by its name in the runner.
func (s *Spaces) Credentials(namespace, name string) []runner.Secret {
	s.mu.Lock()
	one := s.all[namespace]
	s.mu.Unlock()
	if one == nil {
		return nil
	}
	return one.Credentials(name)
}

// Stored returns what a namespace stores, and its ceilings.
func (s *Spaces) Stored(namespace string) map[string]client.Stored {
	s.mu.Lock()
	one := s.all[namespace]
	s.mu.Unlock()
	var has Stored
	var most Quota
	if one != nil {
		has, most = one.store.ledger.stored(), one.opts.Quota
	} else if s.opts.QuotaOf != nil {
		most = s.opts.QuotaOf(namespace)
	}
	return map[string]client.Stored{
		"bytes": {Now: has.Bytes, Max: most.Bytes}, "files": {Now: has.Files, Max: most.Files}, "volumes": {Now: has.Volumes, Max: most.Volumes},
		"snapshots": {Now: has.Snapshots, Max: most.Snapshots}, "templates": {Now: has.Templates, Max: most.Templates},
	}
}

// Sandbox reports whether a request is for a port of a sandbox, and not for the API.
func (s *Spaces) Sandbox(r *http.Request) bool {
	_, _, ok := s.opts.target(r)
	return ok
}

// ServeHTTP finds the Server of a request, which serves it.
func (s *Spaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if has := s.owner(r); has != nil {
		if one := s.having(has); s.opts.Access.Admit(w, one.opts.Namespace) {
			one.ServeHTTP(w, r.WithContext(server.WithCaller(r.Context(), server.InNamespace(one.opts.Namespace))))
		}
		return
	}
	c, ok := s.opts.Access.Authenticate(w, r, func() { unknownKey(w) })
	if !ok || !s.opts.Access.Admit(w, c.Namespace) {
		return
	}
	one, err := s.open(r.Context(), c.Namespace)
	if err != nil {
		fail(w, err)
		return
	}
	one.serveControl(w, r.WithContext(server.WithCaller(r.Context(), c)))
}

// having returns the Server for which has is true. Without one it returns the operator's, which refuses the request.
func (s *Spaces) having(has func(*Server) bool) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if has(one) {
			return one
		}
	}
	return s.all[""]
}

// owner returns how to find the Server of a request that has a token of another kind than its caller's. nil: it needs a
// caller's token.
func (s *Spaces) owner(r *http.Request) func(*Server) bool {
	if id, _, ok := s.opts.target(r); ok {
		return func(one *Server) bool { return one.store.get(id) != nil }
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	part := strings.Split(rest, "/")
	switch {
	case r.URL.Path == "/files" && r.URL.Query().Get("signature") != "":
		return func(one *Server) bool { return one.store.signer(r) != nil }
	case first == "volumecontent":
		return func(one *Server) bool { return one.volumes.has(part[0]) }
	case first == "templatefiles":
		return func(one *Server) bool { return len(part) > 1 && one.store.hasTemplate(part[1]) }
	case r.URL.Path == "/health":
		return func(*Server) bool { return true }
	}
	return nil
}

// signer returns the sandbox whose token signed the address of a request, or nil.
func (st *store) signer(r *http.Request) *entry {
	for _, e := range st.all() {
		if e.signed(r, time.Now()) {
			return e
		}
	}
	return nil
}

func (st *store) hasTemplate(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.templates[id] != nil
}

func (v *volumes) has(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[id] != nil
}
