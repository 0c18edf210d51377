package server

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxHeader bounds the headers of a request, in bytes.
const maxHeader = 64 << 10

// MaxBody bounds the body of a request in JSON, in bytes. Other bounds of bodies are named max…Body. Only the
// sandbox's disk bounds a file for a sandbox.
const MaxBody = 8 << 20

// Guard restricts who reaches an API. A web page in a local browser can send requests to this server under the page's own
// name (DNS rebinding), so the Host header, and an Origin header if there is one, must name this server.
type Guard struct {
	Hosts []string // names in addition to localhost, 127.0.0.1 and [::1]
	// Origins are the origins of foreign pages that may call the API and read its answers (CORS). They need a token: no cookie
	// of this server counts for them.
	Origins []string
	// Domain is the name below which each port of a sandbox has one: PORT-ID.DOMAIN. Its requests go to a sandbox, so their
	// Origin may be that name alone.
	Domain string
}

// Handler passes the allowed requests to h.
func (g Guard) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := hostname(r.Host)
		origins := r.Header.Values("Origin")
		switch {
		case !ok || !g.ours(name):
			Refuse(w, http.StatusForbidden, "this Host is not served")
		case len(origins) == 1 && slices.Contains(g.Origins, origins[0]):
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

// hostChars are the characters of a name in a Host header.
const hostChars = "abcdefghijklmnopqrstuvwxyz0123456789-._"

// hostname returns the name in a Host header, without port and brackets, in lower case. Brackets are only for addresses of
// IPv6. ok is false for other text. The name is empty if the header is, as from a unix socket's client.
func hostname(host string) (name string, ok bool) {
	name = strings.ToLower(host)
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		if strings.Trim(name[i+1:], "0123456789") != "" || i == 0 {
			return "", false
		}
		name = name[:i]
	}
	if inner, found := strings.CutPrefix(name, "["); found {
		inner, found = strings.CutSuffix(inner, "]")
		at, err := netip.ParseAddr(inner)
		return inner, found && err == nil && at.Is6()
	}
	return name, strings.Trim(name, hostChars) == ""
}

// PortLabel returns PORT-ID of a Host that is the name of a sandbox's port below the domain. The guard of requests and their
// router use the same parser: a Host that means a sandbox to one of them means that sandbox to the other.
func (g Guard) PortLabel(host string) (label string, ok bool) {
	name, ok := hostname(host)
	domain, known := hostname(g.Domain)
	if !ok || !known || domain == "" {
		return "", false
	}
	label, ok = strings.CutSuffix(name, "."+domain)
	return label, ok && !strings.Contains(label, ".")
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

// sandbox reports whether name names a sandbox's port.
func (g Guard) sandbox(name string) bool {
	_, ok := g.PortLabel(name)
	return ok
}

// fromUs reports whether each Origin may send requests to host. The page of one sandbox may not reach the API, nor
// another sandbox.
func (g Guard) fromUs(host string, origins []string) bool {
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" {
			return false
		}
		from, ok := hostname(u.Host)
		if !ok || from != host && (g.sandbox(from) || g.sandbox(host) || !g.ours(from)) {
			return false
		}
	}
	return true
}

// Refuse answers with an error in the shape of E2B's API, which no client mistakes for a success.
func Refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, text})
}
