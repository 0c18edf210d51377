package rest

import (
	"context"
	"embed"
	"encoding/json"
	"net/http"

	"demesne/client"
	"demesne/server"
)

// assets are the files of the page, which loads nothing from elsewhere.
//
//go:embed docs
var assets embed.FS

func (s *Server) aboutRoutes() {
	answers(s, operation("get-server", http.MethodGet, "/server", "Server", "Describe the server, and the caller that asks"), s.describe)
}

func (s *Server) describe(ctx context.Context, _ *struct{}) (client.Server, error) {
	c := server.CallerOf(ctx)
	about := client.Server{Version: s.opts.Version, Caller: c.Name, Namespace: c.Namespace, Operator: c.Operator, Host: s.opts.Host != nil}
	if c.Namespace != "" && s.opts.Stored != nil {
		about.Stored = s.opts.Stored(c.Namespace)
	}
	return about, nil
}

// Document returns the OpenAPI document.
func (s *Server) Document() ([]byte, error) {
	return json.MarshalIndent(s.api.OpenAPI(), "", "  ")
}

// docPolicy lets the page load its own files alone.
const docPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) docRoutes() {
	s.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		b, err := s.Document()
		if err != nil {
			write(w, problem(http.StatusInternalServerError, err.Error()))
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		w.Write(b)
	})
	for path, file := range map[string]string{"/docs": "index.html", "/docs/docs.js": "docs.js", "/docs/docs.css": "docs.css"} {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", docPolicy)
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.ServeFileFS(w, r, assets, "docs/"+file)
		})
	}
}
