package mcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where the server answers over HTTP.
const Path = "/mcp"

// sessionIdle is how long an HTTP client may be silent before its session is forgotten.
const sessionIdle = 49 * time.Hour

// HTTPOptions says who may call over HTTP.
type HTTPOptions struct {
	// Token, if not empty, must come with each request: Authorization: Bearer TOKEN.
	// Whoever listens on more than the machine itself must set one.
	Token string
	// Hosts are names of this server besides localhost, 127.0.0.1 and [::1], as clients
	// say them in Host and browsers in Origin, without port.
	Hosts []string
}

// Handler serves streamable HTTP at [Path]. A web page that a user of this machine opens
// can send requests here, under a name of its own (DNS rebinding): Host must be one of
// ours, and Origin, which browsers set, too.
func (s *Server) Handler(o HTTPOptions) http.Handler {
	stream := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessage, SessionTimeout: sessionIdle,
	})
	mux := http.NewServeMux()
	mux.Handle(Path, stream)
	want := sha256.Sum256([]byte(o.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !o.ours(r.Host):
			http.Error(w, "this Host is not served here", http.StatusForbidden)
		case !o.fromUs(r.Header.Values("Origin")):
			http.Error(w, "this Origin may not call here", http.StatusForbidden)
		case o.Token != "" && !authorized(r, want):
			w.Header().Set("WWW-Authenticate", `Bearer realm="demesne"`)
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		default:
			if r.Method == http.MethodDelete {
				s.hangUp(r.Header.Get("Mcp-Session-Id"))
			}
			mux.ServeHTTP(w, r)
		}
	})
}

// authorized compares digests, whose length and content say nothing about the token.
func authorized(r *http.Request, want [sha256.Size]byte) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// ours says whether host, with or without a port, names this server.
func (o HTTPOptions) ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "localhost" || host == "127.0.0.1" || host == "::1" {
		return true
	}
	for _, h := range o.Hosts {
		if strings.EqualFold(host, h) {
			return true
		}
	}
	return false
}

// fromUs says whether a request comes from no browser, or from a page of ours.
func (o HTTPOptions) fromUs(origins []string) bool {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !o.ours(u.Host) {
			return false
		}
	}
	return true
}
