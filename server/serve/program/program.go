package program

import (
	"log"
	"net/http"
	"strings"

	"demesne/runner"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/e2b"
	"demesne/server/operate"
	"demesne/server/serve/mcptools"
	"demesne/server/servecmd"
	"demesne/session/events"
)

// program is a running server: the APIs, and what they share.
type program struct {
	options *servecmd.Options
	state   string // directory
	domain  string
	backend *apibackend.Spaces
	mine    *apibackend.Backend // the operator's
	queue   *server.Queue
	access  *server.Access
	bus     events.Bus
	operate *operate.Operator
	log     *log.Logger
	e2b     *e2b.Spaces
	tools   *mcptools.Tools
	mux     *router // every path except E2B's API
	closers []func()
}

// router remembers its routes, for the test that walks them all.
type router struct {
	*http.ServeMux
	patterns []string
}

func (r *router) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, h)
}

func (r *router) HandleFunc(pattern string, h http.HandlerFunc) { r.Handle(pattern, h) }

// credentials returns the credentials of a sandbox that is restarted.
func (p *program) credentials(namespace, sandbox string) []runner.Secret {
	if p.e2b == nil {
		return nil
	}
	return p.e2b.Credentials(namespace, runner.FrontendCLI.In(namespace).Short(sandbox))
}

func (p *program) close() {
	for _, f := range p.closers {
		f()
	}
}

// ServeHTTP passes requests for ports of sandboxes to E2B's API, whatever their path is, and others by their path.
func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.e2b.Sandbox(r) {
		p.e2b.ServeHTTP(w, r)
		return
	}
	if p.bounded(w, r) {
		p.mux.ServeHTTP(w, r)
	}
}

// bounded bounds the body of a request, unless that is a file. Each API has a bound of its own beside this one. It answers
// by itself and returns false if the body says that it is larger.
func (p *program) bounded(w http.ResponseWriter, r *http.Request) bool {
	most, kind := p.options.MaxBody, r.Header.Get("Content-Type")
	if most <= 0 || strings.HasPrefix(kind, "multipart/") || kind == "application/octet-stream" {
		return true
	}
	if r.ContentLength > most {
		server.Refuse(w, http.StatusRequestEntityTooLarge, server.TooLarge(most))
		return false
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	return true
}
