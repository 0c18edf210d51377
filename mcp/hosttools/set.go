package hosttools

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Set serves the allowed servers of one sandbox. It is an http.Handler and safe for concurrent use.
type Set struct {
	relays map[string]*relay
	names  []string
	mux    *http.ServeMux
}

// maxBody bounds a request from the sandbox, in bytes.
const maxBody = 16 << 20

// Open returns the set of the servers that the list allows something of. None is started yet.
func Open(servers []Server, allowed Allowlist, o Options) *Set {
	o.Idle, o.Heartbeat = cmp.Or(o.Idle, 10*time.Minute), cmp.Or(o.Heartbeat, 10*time.Second)
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	s := &Set{relays: map[string]*relay{}, mux: http.NewServeMux()}
	for _, server := range servers {
		rule, named := allowed[server.Name]
		rule.Tools.Default = rule.Tools.Default && !o.OnlyNamed
		if !named || rule.none() {
			continue
		}
		r := newRelay(server, rule, o)
		s.relays[server.Name] = r
		s.names = append(s.names, server.Name)
		s.mux.Handle(Path(server.Name), sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return r.front },
			&sdk.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody, SessionTimeout: sessionIdle}))
	}
	slices.Sort(s.names)
	return s
}

// sessionIdle is the idle time after which the session of a client inside is closed. Commands may take 48 h.
const sessionIdle = 49 * time.Hour

// Path is the path of a server's endpoint.
func Path(server string) string { return "/" + server + "/mcp" }

// Names returns the names of the servers that a sandbox can reach, sorted.
func (s *Set) Names() []string { return s.names }

// ServeHTTP serves the endpoints. A page that a browser inside shows could send requests under a name of its own, so
// Host must be the loopback's, and Origin is refused.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if host != "127.0.0.1" && host != "localhost" || r.Header.Get("Origin") != "" {
		http.Error(w, "this Host or Origin is not served", http.StatusForbidden)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Close stops the servers.
func (s *Set) Close() {
	for _, r := range s.relays {
		r.close()
	}
}
