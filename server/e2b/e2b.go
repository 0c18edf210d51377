// Package e2b serves the API that E2B's SDKs speak, over sandboxes of package server:
//
//	E2B_API_URL=http://127.0.0.1:7480 E2B_SANDBOX_URL=http://127.0.0.1:7480 E2B_API_KEY=TOKEN
//
// A request belongs to one of four services. Without a sandbox in its headers or Host it is a control call, and needs
// a token of its namespace as X-API-KEY. With one, port 49983 is envd (commands and files) and port 49999 the code interpreter;
// each needs the sandbox's own random token. Any other port is a program in the sandbox.
//
//	e2b.go         the services; spaces.go: a Server for each namespace; answer.go: answers and errors
//	credentials.go the tokens of a sandbox's ports
//	record.go      a sandbox's record on disk; store.go: all records, and their ends; account.go: users in a sandbox
//	sandboxes.go   control calls about sandboxes; list.go, network.go, forks.go, measure.go; idempotent.go: repeated ones
//	startup.go     what a sandbox starts with, and how it resumes
//	process.go     process.Process; running.go: a process and its readers
//	filesystem.go  filesystem.Filesystem, with watch.go; upload.go: /files
//	interpreter.go /execute and /contexts; ports.go: programs in a sandbox
//	quota.go       the ceilings of what a namespace stores; holding.go: what a volume holds
//	template.go    templates; build.go: their builds; buildfiles.go, unpack.go: files for builds
//	built.go       what the images of templates hold; secrets.go, rules.go, volumes.go
//
// A fork and a snapshot have files, and no processes. docs/guide/server/serve.md has the table of calls that are not supported.
//
// Paths and users of a request mean those of the sandbox, where the kernel resolves them: the package opens no file of a
// sandbox. Everything that a sandbox sends is untrusted, and passed on as data.
package e2b

import (
	"cmp"
	"context"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"demesne/images/imageref"
	"demesne/server"
	"demesne/server/e2b/envd"
)

// Options configures a Server.
type Options struct {
	Backend server.Sandboxes
	State   string // directory for records, which only this user can reach
	Key     string // signs addresses for uploads; the token of control calls without Access
	Access  *server.Access
	// Namespace is that of the callers: see [Spaces].
	Namespace string
	Vault     Vault  // keeps the values of secrets; nil: there are no secrets
	Image     string // that of the templates base and code-interpreter-v1; empty: the default of this machine
	Domain    string // ports of sandboxes have names below it; empty: "localhost"
	Log       *log.Logger
	Queue     *server.Queue                // of executions of code; that of processes is the backend's
	Quota     Quota                        // of the namespace; the zero value has no ceiling
	Beside    *http.ServeMux               // has the routes of the other APIs of the server; may be nil
	QuotaOf   func(namespace string) Quota // for [Spaces]; nil: no namespace has ceilings
}

// hostImage is the name of the host's own programs, which no image can be built from, and builtBase what is built from then.
const (
	hostImage = "host"
	builtBase = "demesne/debian"
)

// base returns the image that a build from the template base starts with.
func (o *Options) base() string {
	if name := cmp.Or(o.Image, imageref.Default(os.Getenv), hostImage); name != hostImage {
		return name
	}
	return builtBase
}

// Server serves the API. Its methods may be called concurrently.
type Server struct {
	opts    Options
	store   *store
	control *http.ServeMux
	inside  *http.ServeMux // envd
	secrets *secrets
	volumes *volumes
	builds  builds
}

// The ports by which the SDKs name services of a sandbox.
const (
	portEnvd        = 49983
	portInterpreter = 49999
)

// version is the version of envd whose features the package has.
const version = "0.6.4"

// Bounds of the bodies of requests, in bytes, beside [server.MaxBody].
const (
	maxCodeBody   = 4 * server.MaxBody // code for a kernel
	maxRPCBody    = 64 << 20           // a message, which may hold input for a process
	maxUploadBody = 4 << 30            // files for a build
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
	s.inside.HandleFunc("GET /envs", s.envs)
	s.inside.HandleFunc("GET /metrics", s.envdMetrics)
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
	for pattern, h := range map[string]http.HandlerFunc{
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
		m.HandleFunc(pattern, h)
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

// Sandbox reports whether a request is for a port of a sandbox, and not for the API.
func (s *Server) Sandbox(r *http.Request) bool {
	_, _, ok := s.opts.target(r)
	return ok
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

// target returns the sandbox and the port that a request names in its headers or its Host. Without an id they disagree, or
// name none: serveSandbox refuses it.
//
// A page of a sandbox may send any header to its own name. The headers must therefore agree with a Host that names a sandbox.
func (o *Options) target(r *http.Request) (id string, port uint16, ok bool) {
	ids, ports := r.Header.Values("E2b-Sandbox-Id"), r.Header.Values("E2b-Sandbox-Port")
	label, named := server.Guard{Domain: o.Domain}.PortLabel(r.Host)
	if named {
		text, of, _ := strings.Cut(label, "-")
		ids, ports = append([]string{of}, ids...), append([]string{text}, ports...)
	}
	if len(ids) == 0 || ids[0] == "" && !named {
		return "", 0, false
	}
	for i, text := range ports {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			n = 0 // serveSandbox refuses it
		}
		if i > 0 && uint16(n) != port {
			return "", 0, true
		}
		port = uint16(n)
	}
	for _, other := range ids[1:] {
		if other != ids[0] {
			return "", 0, true
		}
	}
	return ids[0], port, true
}

type contextKey struct{}

// entryOf returns the sandbox of a request that serveSandbox has checked.
func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(contextKey{}).(*entry)
	return e
}

// serveSandbox serves a request for a port of a sandbox. It resumes a paused one only for a request with the right token.
func (s *Server) serveSandbox(w http.ResponseWriter, r *http.Request, id string, port uint16) {
	if id == "" {
		server.Refuse(w, http.StatusForbidden, "Host, E2b-Sandbox-Id and E2b-Sandbox-Port do not name one sandbox")
		return
	}
	e := s.store.get(id)
	if e == nil || !e.running() && !e.wakes(r, port) {
		unreachable(w, id, 0, "The sandbox was not found")
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
		if _, err := e.resume(r.Context(), defaultTimeout*time.Second); err != nil {
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

// wakes reports whether a request may resume a paused sandbox, because its creator asked for that. A question about its
// health does not.
func (e *entry) wakes(r *http.Request, port uint16) bool {
	rec := e.snap()
	return rec.State == paused && rec.AutoResume && r.URL.Path != "/health" && port != 0
}

// after calls f once, after d.
func after(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, f)
	return sync.OnceFunc(func() { t.Stop() })
}
