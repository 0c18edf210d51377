package rest

import (
	"log"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"demesne/client"
	"demesne/server"
)

// New returns a Server.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = log.Default()
	}
	s := &Server{opts: o, mux: http.NewServeMux()}
	errorShape()
	s.api = humago.New(s.mux, s.config())
	s.routes()
	s.describeAll()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, problem(server.NotServed(w, r, s.mux, o.Beside)))
	})
	return s
}

// config describes the API. The document and its page are routes of our own: see describe.go.
func (s *Server) config() huma.Config {
	c := huma.DefaultConfig("demesne", s.opts.Version)
	c.Transformers = append(c.Transformers, func(hc huma.Context, _ string, v any) (any, error) {
		if e, ok := v.(*client.Error); ok {
			return s.masked(hc.Context(), e), nil
		}
		return v, nil
	})
	c.Info.Description = "Sandboxes over HTTP. Every error has the shape of Error."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "The server's token, or one of a namespace"},
		"key":   {Type: "apiKey", In: "header", Name: "X-API-KEY"},
	}
	c.Security = []map[string][]string{{"token": {}}, {"key": {}}}
	c.RejectUnknownQueryParameters = true
	return c
}

func (s *Server) routes() {
	for _, add := range []func(){
		s.aboutRoutes, s.runRoutes, s.queueRoutes, s.jobRoutes, s.terminalRoutes, s.sandboxRoutes, s.lifeRoutes, s.processRoutes, s.browserRoutes,
		s.fileRoutes, s.egressRoutes, s.portRoutes, s.imageRoutes, s.hostRoutes, s.operateRoutes, s.docRoutes,
	} {
		add()
	}
}

// Close ends the published ports.
func (s *Server) Close() { s.published.remove(func(*forward) bool { return true }) }
