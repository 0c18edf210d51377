package server

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Limits of a request. Bodies of files have no bound but the sandbox's disk.
const (
	headerMost = 64 << 10
	// BodyMost bounds a JSON body.
	BodyMost = 8 << 20
)

// Guard restricts who reaches an API. A web page in a local browser can send requests to this server under the page's own
// name (DNS rebinding), so the Host header, and an Origin header if there is one, must name this server.
type Guard struct {
	Hosts []string // names besides localhost, 127.0.0.1 and [::1]
	// Origins are those of foreign pages that may call the API and read its answers (CORS). They need a token: no cookie of
	// this server counts for them.
	Origins []string
	// Domain is the name below which each port of a sandbox has one: PORT-ID.DOMAIN. Its requests go to a sandbox, so their
	// Origin may be that name alone.
	Domain string
}

// Handler passes the allowed requests to h.
func (g Guard) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, origins := hostname(r.Host), r.Header.Values("Origin")
		switch {
		case !g.ours(name):
			Refuse(w, http.StatusForbidden, "this Host is not served")
		case g.ours(name) && len(origins) == 1 && slices.Contains(g.Origins, origins[0]):
			if !preflight(w, r, origins[0]) {
				h.ServeHTTP(w, r)
			}
		case !g.fromUs(name, origins):
			Refuse(w, http.StatusForbidden, "this Origin is not allowed")
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// corsHeaders are the headers of answers that a page may read, beside the usual ones.
const corsHeaders = "Mcp-Session-Id, Mcp-Protocol-Version, X-Next-Token, X-Total-Running, Retry-After"

// preflight lets the page of an origin read the answer. It answers the question of a browser whether the page may send a
// request, and returns true then.
func preflight(w http.ResponseWriter, r *http.Request, origin string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", corsHeaders)
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// hostname returns the name in a Host header, without port and brackets, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

func (g Guard) ours(name string) bool {
	if name == "localhost" || name == "127.0.0.1" || name == "::1" || name == "" { // empty: a unix socket's client
		return true
	}
	for _, h := range g.Hosts {
		if strings.EqualFold(name, h) {
			return true
		}
	}
	return g.sandbox(name)
}

// sandbox reports whether name is that of a sandbox's port.
func (g Guard) sandbox(name string) bool {
	domain := hostname(g.Domain)
	return domain != "" && strings.HasSuffix(name, "."+domain) && !strings.Contains(strings.TrimSuffix(name, "."+domain), ".")
}

// fromUs reports whether each Origin may send requests to host. The page of one sandbox may not reach the API, nor
// another sandbox.
func (g Guard) fromUs(host string, origins []string) bool {
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" {
			return false
		}
		from := hostname(u.Host)
		if from != host && (g.sandbox(from) || g.sandbox(host) || !g.ours(from)) {
			return false
		}
	}
	return true
}

// Refuse answers with an error in the shape of E2B's API, which no client mistakes for a success. With its data, which is
// empty, it also has the shape of the errors of /v1.
func Refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(struct {
		Code    int      `json:"code"`
		Message string   `json:"message"`
		Data    []string `json:"data"`
	}{status, text, []string{}})
}
