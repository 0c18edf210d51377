package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is the path of the MCP endpoint.
const Path = "/mcp"

// sessionIdle is the idle time after which an HTTP session is closed.
const sessionIdle = 49 * time.Hour

// HTTPOptions restricts access over HTTP.
type HTTPOptions struct {
	// Token, if not empty, must be sent with each request: Authorization: Bearer TOKEN. It must
	// be set when listening on an address other than loopback.
	Token string
	// Hosts are names of this server in addition to localhost, 127.0.0.1 and [::1]. They are
	// compared with the Host and Origin headers, without port.
	Hosts []string
}

// Handler serves [Server.Endpoint] at [Path].
//
// A web page in a local browser can send requests to this server under the page's own name (DNS rebinding). Handler
// therefore requires that the Host header, and an Origin header if present, name this server.
func (s *Server) Handler(o HTTPOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(Path, s.Endpoint())
	want := sha256.Sum256([]byte(o.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !o.ours(r.Host):
			http.Error(w, "this Host is not served", http.StatusForbidden)
		case !o.fromUs(r.Header.Values("Origin")):
			http.Error(w, "this Origin is not allowed", http.StatusForbidden)
		case o.Token != "" && !authorized(r, want):
			w.Header().Set("WWW-Authenticate", `Bearer realm="demesne"`)
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// Endpoint serves streamable HTTP. From protocol 2026-07-28 on, a request is the whole of a call, which is cancelled when
// its connection has ended. Before, a client has a session: it can return within replayTime and gets what it missed. A
// client that accepts no event stream has no session, and gets each answer as JSON.
//
// Endpoint does not check where a request comes from: its caller does.
func (s *Server) Endpoint() http.Handler {
	server := func(*http.Request) *sdk.Server { return s.sdk }
	sessions := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessage, SessionTimeout: sessionIdle, EventStore: newReplay(),
	})
	calls := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessage, Stateless: true, PropagateRequestCancellation: true,
	})
	plain := sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessage, Stateless: true, JSONResponse: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Mcp-Session-Id")
		switch {
		case r.Header.Get("Mcp-Protocol-Version") >= severalRounds:
			serveCall(calls, w, r)
			return
		case r.Method == http.MethodPost && id == "" && !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream"):
			r = r.WithContext(context.WithValue(r.Context(), plainKey{}, r.Context()))
			r.Header.Set("Accept", "application/json, text/event-stream") // the SDK requires both
			if !isJSON(r) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse_error: the body is not JSON"}}`+"\n")
				return
			}
			plain.ServeHTTP(w, r)
			return
		case r.Method == http.MethodDelete:
			s.hangUp(id)
		}
		defer s.attach(r.Context(), id)()
		sessions.ServeHTTP(w, r)
	})
}

// isJSON reports whether the body is JSON, and leaves it to be read. One that cannot be read is left to the SDK's bounds.
func isJSON(r *http.Request) bool {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxMessage+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), r.Body), r.Body}
	return err != nil || len(b) > maxMessage || json.Valid(b)
}

// plainKey is the key of the context of a request without a session. The SDK ends a call with its connection only in
// later protocols, so [Server.begin] does it here.
type plainKey struct{}

// authorized compares digests, so that the time of the comparison reveals nothing about the
// token.
func authorized(r *http.Request, want [sha256.Size]byte) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// ours reports whether host, with or without a port, names this server.
func (o HTTPOptions) ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "localhost" || host == "127.0.0.1" || host == "::1" {
		return true
	}
	return slices.ContainsFunc(o.Hosts, func(h string) bool { return strings.EqualFold(host, h) })
}

// fromUs reports whether all Origin headers name this server. Without an Origin header it is
// true.
func (o HTTPOptions) fromUs(origins []string) bool {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !o.ours(u.Host) {
			return false
		}
	}
	return true
}

// eventStream is the answer to a request in protocol 2026-07-28. Clients abort a call whose answer does not begin, and
// this protocol has no message for a call that requested none.
type eventStream struct {
	http.ResponseWriter
	mu   sync.Mutex
	done bool
}

type eventStreamKey struct{}

// serveCall serves a request whose context has its eventStream.
func serveCall(h http.Handler, w http.ResponseWriter, r *http.Request) {
	e := &eventStream{ResponseWriter: w}
	defer e.end()
	h.ServeHTTP(e, r.WithContext(context.WithValue(r.Context(), eventStreamKey{}, e)))
}

// streamOf returns the eventStream of a call; nil: none.
func streamOf(ctx context.Context) *eventStream {
	e, _ := ctx.Value(eventStreamKey{}).(*eventStream)
	return e
}

func (e *eventStream) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ResponseWriter.Write(p)
}

// FlushError is called by [http.ResponseController].
func (e *eventStream) FlushError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return http.NewResponseController(e.ResponseWriter).Flush()
}

func (e *eventStream) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = true
}

// comment sends bytes that are not an event. It may only be called while the request is handled.
func (e *eventStream) comment() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.done {
		io.WriteString(e.ResponseWriter, ":\n\n")
		http.NewResponseController(e.ResponseWriter).Flush()
	}
}
