package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"demesne/proxy/redact"
)

// Route is an HTTP service for programs in the sandbox. The proxy checks each request, inserts a credential, and
// forwards the request to one server. The operator chooses that server, so no rule and no check of addresses applies
// to it.
type Route struct {
	Port   uint16            // on the sandbox's loopback
	To     string            // base URL of the server, http or https. Its path precedes each request's path
	Allow  []string          // "METHOD /path": the requests that are forwarded
	Query  []string          // names of the parameters that are forwarded
	Token  string            // authenticates the sandbox; empty: no request is authentic
	Header map[string]string // replaces the request's headers of these names
	Usage  string            // wire format of the responses whose token counts are read: see formats; empty: none

	// Closed refuses requests that might make the server reach other hosts for the sandbox: see closed.go. It forwards only
	// harmless headers, and Headers: names, or beginnings of names before an asterisk.
	Closed  bool
	Headers []string

	// Record receives the token counts of each response. It is called when the response is complete. nil: none
	Record func(Usage) error
	// Gate is asked before a request that may cost something is forwarded. Gated without a Gate refuses all of those.
	Gate  Gate
	Gated bool
}

// Validate returns an error if the route cannot be served. The error contains no credential.
func (r Route) Validate() error {
	_, err := r.parse()
	return err
}

// route is a parsed Route.
type route struct {
	port   uint16
	to     *url.URL
	allow  map[operation]bool
	query  map[string]bool   // names of parameters
	check  schema            // of the bodies of a closed route; nil: the route is not closed
	names  []string          // of headers that a closed route forwards
	token  [sha256.Size]byte // of a token that exists
	closed bool              // there is no token
	insert atomic.Pointer[insertion]
	format *format // nil: no usage is read
	record func(Usage) error
	gate   Gate
	gated  bool
}

// operation is an allowed request.
type operation struct{ method, path string }

// insertion is the text that the proxy adds to requests and hides in responses.
type insertion struct {
	header http.Header
	hidden *redact.Values
}

func (r Route) parse() (*route, error) {
	fail := func(format string, a ...any) (*route, error) {
		return nil, fmt.Errorf("route on port %d: %w", r.Port, fmt.Errorf(format, a...))
	}
	to, err := url.Parse(r.To)
	switch {
	case err != nil || to.User != nil: // the text may contain a password
		return fail("its server is not a URL, or a URL with a user name")
	case to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "" || to.Opaque != "":
		return fail("server %q: not an http or https URL", r.To)
	case to.RawQuery != "" || to.ForceQuery || to.Fragment != "" || to.RawPath != "" || !plain(strings.TrimSuffix(to.Path, "/")):
		return fail("server %q: has a query, a fragment, or a path that is not clean", r.To)
	}
	to.Path = strings.TrimSuffix(to.Path, "/")
	rt := &route{
		port: r.Port, to: to, allow: map[operation]bool{}, token: sha256.Sum256([]byte(r.Token)), closed: r.Token == "",
		record: r.Record, gate: r.Gate, gated: r.Gated || r.Gate != nil,
	}
	for _, words := range r.Allow {
		op, err := parseOperation(words)
		if err != nil {
			return fail("%w", err)
		}
		rt.allow[op] = true
	}
	if len(rt.allow) == 0 {
		return fail("it allows no request")
	}
	if rt.query, err = parseQuery(r.Query); err != nil {
		return fail("%w", err)
	}
	if rt.format = formats[r.Usage]; r.Usage != "" && rt.format == nil {
		return fail("usage %q: unknown wire format", r.Usage)
	}
	if err := rt.close(r); err != nil {
		return fail("%w", err)
	}
	if rt.format == nil && rt.gated {
		rt.format = unread
	}
	in, err := parseInsertion(r.Header)
	if err != nil {
		return fail("%w", err)
	}
	rt.insert.Store(in)
	return rt, nil
}

// parseOperation parses "METHOD /path".
func parseOperation(words string) (operation, error) {
	method, p, _ := strings.Cut(words, " ")
	switch {
	case !httpguts.ValidHeaderFieldName(method) || method != strings.ToUpper(method) || method == http.MethodConnect:
		return operation{}, fmt.Errorf("request %q: not a method and a path", words)
	case !strings.HasPrefix(p, "/") || p != "/" && !plain(p):
		return operation{}, fmt.Errorf("request %q: its path is not clean", words)
	}
	return operation{method, p}, nil
}

// parseQuery returns a set of the names of parameters. None of them may carry a credential.
func parseQuery(names []string) (map[string]bool, error) {
	set := map[string]bool{}
	for _, name := range names {
		if slices.Contains(credentialParameters, strings.ToLower(name)) || name == "" {
			return nil, fmt.Errorf("query parameter %q: cannot be forwarded", name)
		}
		set[name] = true
	}
	return set, nil
}

// plain reports whether p is empty, or an absolute path that is clean and needs no escapes.
func plain(p string) bool {
	return p == "" || p != "/" && path.Clean(p) == p && p[0] == '/' && (&url.URL{Path: p}).EscapedPath() == p && !strings.Contains(p, ";")
}

// unsettable are the headers that an insertion must not have: they frame the message.
var unsettable = append([]string{"Host", "Content-Length", "Expect", "Accept-Encoding"}, hopByHop...)

func parseInsertion(values map[string]string) (*insertion, error) {
	in := &insertion{header: http.Header{}}
	var hidden []string
	for name, v := range values {
		switch key := http.CanonicalHeaderKey(name); {
		case !httpguts.ValidHeaderFieldName(name) || slices.Contains(unsettable, key) || in.header[key] != nil:
			return nil, fmt.Errorf("header %q: cannot be set, or is given twice", name)
		case !httpguts.ValidHeaderFieldValue(v):
			return nil, fmt.Errorf("header %q: its value is not valid", name)
		default:
			in.header.Set(key, v)
		}
		if private(name) {
			_, credential, _ := strings.Cut(v, " ") // of "Bearer …"
			hidden = append(hidden, v, strings.TrimSpace(credential))
		}
	}
	in.hidden = redact.New(hidden...)
	return in, nil
}

// private reports whether the value of a header may be a credential. Others, such as a version or the names of
// features, are words that may occur in any response, and stay readable there.
func private(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie", "account", "session"}, func(s string) bool { return strings.Contains(name, s) })
}

// hopByHop are the headers of one connection (RFC 9110, 7.6.1).
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings"}

// credentials are the headers that carry a client's credential. None of them reaches the server.
var credentials = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "Proxy-Authorization", "Cookie"}

// credentialParameters are parameters of a query that carry one, in lower case. No route forwards them.
var credentialParameters = []string{"key", "api_key", "apikey", "api-key", "access_token", "token", "auth", "oauth_token"}

// authentic reports whether a request has the token.
func (rt *route) authentic(h http.Header) bool {
	given := append(h.Values("X-Api-Key"), h.Values("X-Goog-Api-Key")...)
	for _, v := range h.Values("Authorization") {
		if kind, token, _ := strings.Cut(v, " "); strings.EqualFold(kind, "Bearer") {
			given = append(given, strings.TrimSpace(token))
		}
	}
	found := 0
	for _, token := range given {
		sum := sha256.Sum256([]byte(token))
		found |= subtle.ConstantTimeCompare(sum[:], rt.token[:])
	}
	return found == 1 && !rt.closed
}

// The reasons for which a route refuses a request.
var (
	errNoToken = errors.New("the request has no valid token for this route")
	errNotHTTP = errors.New("this route forwards no CONNECT, no upgrade and no request with another host in its target")
	errRequest = errors.New("this route does not forward this method and path")
	errQuery   = errors.New("the query cannot be parsed")
)

// decide returns the path and the query to forward a request with, or why it is refused. The path is the allowlist's text,
// never the request's.
func (rt *route) decide(r *http.Request) (p, query string, err error) {
	if !rt.authentic(r.Header) {
		return "", "", errNoToken
	}
	if r.Method == http.MethodConnect || r.Header["Upgrade"] != nil || r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" {
		return "", "", errNotHTTP
	}
	p, ok := decoded(r.URL.EscapedPath())
	if !ok || !rt.allow[operation{r.Method, p}] {
		return "", "", errRequest
	}
	if query, ok = rt.parameters(r.URL.RawQuery); !ok {
		return "", "", errQuery
	}
	return p, query, nil
}

// decoded returns a path without its escapes. It is false for a path that servers understand differently: one with an
// escaped slash, a backslash, a dot segment or a control character.
func decoded(escaped string) (string, bool) {
	p, err := url.PathUnescape(escaped)
	odd := err != nil || strings.Count(p, "/") != strings.Count(escaped, "/") || strings.ContainsFunc(p, func(c rune) bool {
		return c < ' ' || c >= 0x7f || strings.ContainsRune(`\%;?#`, c)
	})
	return p, !odd && (p == "/" || p != "" && path.Clean(p) == p)
}

// parameters returns the listed parameters of a query. Another one could hold a credential, by whatever name, and so
// send data to another account.
func (rt *route) parameters(raw string) (string, bool) {
	if raw == "" {
		return "", true
	}
	if strings.Contains(raw, ";") { // a separator to some servers
		return "", false
	}
	var rest []string
	for part := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return "", false
		}
		if rt.query[name] {
			rest = append(rest, part)
		}
	}
	return strings.Join(rest, "&"), true
}
