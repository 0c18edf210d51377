package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"demesne/server"
)

// Page serves the page.
type Page struct {
	http.Handler
	files  map[string]file
	access *server.Access
}

// New returns the page of callers that access knows.
func New(access *server.Access) (*Page, error) {
	p := &Page{access: access}
	var err error
	if p.files, err = files(); err != nil {
		return nil, fmt.Errorf("read assets: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root, p.serveFile)
	mux.HandleFunc("POST "+Root+"login", p.login)
	mux.HandleFunc("POST "+Root+"logout", func(w http.ResponseWriter, r *http.Request) {
		access.Logout(w, r)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.Handle("GET "+Root+"session", access.Handler(http.HandlerFunc(session)))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Root, http.StatusFound) })
	p.Handler = guarded(mux)
	return p, nil
}

// maxLoginBody bounds the body of a login, in bytes.
const maxLoginBody = 16 << 10

// who is the page's information about its caller. Half is the half of the login that the page keeps: see [server.Logins].
type who struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Operator  bool   `json:"operator"`
	Half      string `json:"half,omitempty"`
}

// login takes only JSON, which no form of another site can send.
func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		server.Refuse(w, http.StatusForbidden, "only the page logs in")
		return
	}
	if json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLoginBody)).Decode(&in) != nil {
		server.Refuse(w, http.StatusBadRequest, "the body is not a token in JSON")
		return
	}
	var me who
	token := strings.TrimSpace(in.Token)
	right, answered := p.access.Try(w, r, token, func() bool {
		c, half, err := p.access.Login(w, r, token)
		me = who{c.Name, c.Namespace, c.Operator, half}
		return err == nil
	})
	switch {
	case right:
		answer(w, me)
	case !answered:
		server.Refuse(w, http.StatusUnauthorized, "the server does not accept this token")
	}
}

// session describes the caller of a login.
func session(w http.ResponseWriter, r *http.Request) {
	c := server.CallerOf(r.Context())
	answer(w, who{Name: c.Name, Namespace: c.Namespace, Operator: c.Operator})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(v)
}

// serveFile sends a file. Browsers ask for each file at each start, so that a new server's page is never mixed with an old
// one's, and get no content for one that they have.
func (p *Page) serveFile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Root)
	if name == "" {
		name = "index.html"
	}
	f, ok := p.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", f.policy)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.body))
}

// guarded sets the headers that every answer of the page has.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-DNS-Prefetch-Control", "off") // no look-up of a host's name that a link has, before the user follows it
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		next.ServeHTTP(w, r)
	})
}
