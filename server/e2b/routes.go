package e2b

import (
	"context"
	"log"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"demesne/server"
	"demesne/server/e2b/envd"
)

// New returns a Server that knows the sandboxes of the servers before it.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.Domain == "" {
		o.Domain = "localhost"
	}
	if o.Log == nil {
		o.Log = log.Default()
	}
	if o.Access == nil {
		o.Access = &server.Access{Token: o.Key}
	}
	s := &Server{opts: o}
	var err error
	if s.store, err = openStore(ctx, o); err != nil {
		return nil, err
	}
	if s.secrets, err = openSecrets(s.store.dir, o.Vault); err != nil {
		return nil, err
	}
	if s.volumes, err = openVolumes(s.store.dir, &s.store.ledger); err != nil {
		return nil, err
	}
	s.volumes.access = s.opts.Access
	s.builds.try = s.try
	s.volumes.users, s.builds.opts, s.builds.store, s.store.volumes = s.store.all, &s.opts, s.store, s.volumes
	s.builds.ctx, s.builds.end = context.WithCancel(ctx)
	s.store.mount()
	for _, one := range s.store.all() {
		if one.rec.Start != nil && one.running() { // it ended with the server before
			go one.beginAgain()
		}
	}
	s.store.pictures.collect()
	s.control, s.inside = s.controlRoutes(), http.NewServeMux()
	bound := connect.WithReadMaxBytes(maxRPCBody)
	s.inside.Handle(envd.NewProcessHandler(&processes{s}, bound))
	s.inside.Handle(envd.NewFilesystemHandler(&filesystem{s: s}, bound))
	s.inside.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { empty(w) })
	s.inside.Handle("GET /envs", call(s.envs))
	s.inside.Handle("GET /metrics", call(s.envdMetrics))
	s.inside.HandleFunc("GET /files", s.download)
	s.inside.HandleFunc("POST /files", s.upload)
	s.inside.HandleFunc("/", notServed(s.inside))
	return s, nil
}

// Close stops the timers, and ends the builds. The sandboxes live on.
func (s *Server) Close() {
	s.builds.close()
	s.store.close()
}

func (s *Server) controlRoutes() *http.ServeMux {
	m := http.NewServeMux()
	for pattern, h := range map[string]call{
		"POST /v2/sandboxes": s.create, "POST /sandboxes": s.create,
		"GET /v2/sandboxes": s.list, "GET /sandboxes": s.list,
		"POST /v2/sandboxes/{id}/connect": s.connect, "POST /sandboxes/{id}/connect": s.connect, "POST /sandboxes/{id}/resume": s.connect,
		"GET /sandboxes/{id}": s.detail, "DELETE /sandboxes/{id}": s.kill,
		"POST /sandboxes/{id}/timeout": s.setTimeout, "POST /sandboxes/{id}/refreshes": s.refresh,
		"POST /sandboxes/{id}/pause": s.pause, "PUT /sandboxes/{id}/network": s.network,
		"POST /sandboxes/{id}/fork": s.fork, "POST /sandboxes/{id}/snapshots": s.snapshot,
		"GET /snapshots": s.listSnapshots, "DELETE /templates/{id}": s.removeTemplate,
		"GET /sandboxes/{id}/metrics": s.metrics, "GET /sandboxes/metrics": s.metricsOfMany,
		"GET /sandboxes/{id}/logs": s.logs, "GET /v2/sandboxes/{id}/logs": s.logs,
		"POST /secrets": s.secrets.secretCreate, "GET /secrets": s.secrets.secretList, "GET /secrets/{id}": s.secrets.secretGet,
		"POST /secrets/{id}": s.secrets.secretUpdate, "DELETE /secrets/{id}": s.secrets.secretRemove,
		"POST /volumes": s.volumes.volumeCreate, "GET /volumes": s.volumes.volumeList, "GET /volumes/{id}": s.volumes.volumeGet, "DELETE /volumes/{id}": s.volumes.volumeRemove,
		"GET /templates": s.builds.templates, "POST /v3/templates": s.builds.templateCreate,
		"GET /templates/{id}/files/{hash}": s.builds.templateFile, "POST /v2/templates/{id}/builds/{build}": s.builds.templateBuild,
		"GET /templates/{id}/builds/{build}/status": s.builds.templateStatus, "POST /templates/tags": s.builds.templateTag,
		"DELETE /templates/tags": s.builds.templateUntag, "GET /templates/{id}/{what}": s.builds.templateAbout,
	} {
		m.Handle(pattern, h)
	}
	m.HandleFunc("/", notServed(m, s.opts.Beside))
	return m
}

// notServed answers what no route serves.
func notServed(muxes ...*http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, text := server.NotServed(w, r, muxes...)
		server.Refuse(w, status, text)
	}
}

// ServeHTTP finds the service of a request, checks its token, and serves it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id, port, ok := s.opts.target(r); ok {
		s.serveSandbox(w, r, id, port)
		return
	}
	switch {
	case r.URL.Path == "/files" && r.URL.Query().Get("signature") != "":
		s.serveSigned(w, r)
	case strings.HasPrefix(r.URL.Path, "/volumecontent/"):
		s.volumes.serve(w, r)
	case strings.HasPrefix(r.URL.Path, "/templatefiles/"):
		s.builds.serveUpload(w, r)
	case r.URL.Path == "/health":
		empty(w)
	default:
		if c, err := s.opts.Access.Caller(r); err != nil || c.Namespace != s.opts.Namespace {
			unknownKey(w)
			return
		}
		s.serveControl(w, r)
	}
}

func unknownKey(w http.ResponseWriter) {
	server.Refuse(w, http.StatusUnauthorized, "the API key is not this server's token")
}

// serveControl serves a control call of a caller that is known.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, server.MaxBody)
	s.control.ServeHTTP(w, r)
}

// serveSandbox serves a request for a port of a sandbox. It resumes a paused one only for a request with the right token.
func (s *Server) serveSandbox(w http.ResponseWriter, r *http.Request, id string, port uint16) {
	if id == "" {
		server.Refuse(w, http.StatusForbidden, "Host, E2b-Sandbox-Id and E2b-Sandbox-Port do not name one sandbox")
		return
	}
	e := s.store.get(id)
	if e == nil || !e.running() && !e.wakes(r, port) {
		unfound(w, id)
		return
	}
	if port == 0 {
		server.Refuse(w, http.StatusBadRequest, "E2b-Sandbox-Port: not a port")
		return
	}
	if !e.authorize(s.opts.Access, w, r, port) {
		return
	}
	if !e.running() {
		if _, err := e.resume(r.Context(), defaultTimeout*time.Second, false); err != nil {
			fail(w, err)
			return
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), contextKey{}, e))
	switch port {
	case portEnvd:
		s.inside.ServeHTTP(w, r)
	case portInterpreter:
		s.interpret(w, r)
	default:
		s.forward(w, r, e, port)
	}
}
