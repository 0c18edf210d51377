package runner

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Route is an HTTP service at 127.0.0.1:Port of the sandbox. The proxy checks each request, inserts the credential,
// and forwards the request to one server outside. The sandbox never sees the credential, and needs no rule for that
// server. Header, like the values of Secrets, is kept in memory only.
type Route struct {
	Port  uint16   `json:"port"`
	To    string   `json:"to"`              // base URL, http or https; its path precedes the request's. It may be a loopback address
	Allow []string `json:"allow"`           // "METHOD /path": the only requests that are forwarded. Others get 403
	Query []string `json:"query,omitempty"` // names of the parameters that are forwarded, without the others

	// Token authenticates the sandbox, as Bearer token, or as value of X-Api-Key or X-Goog-Api-Key. A request without
	// it gets 401. It is worth nothing elsewhere. Like Header it is kept in memory only.
	Token string `json:"token,omitempty"`

	// Header replaces the request's headers of these names. A request's own credentials are always removed:
	// Authorization, X-Api-Key, X-Goog-Api-Key, Api-Key, Proxy-Authorization and Cookie.
	Header map[string]string `json:"header,omitempty"`

	// Closed is for a sandbox whose network is closed. It refuses requests that might make a model's provider reach other
	// hosts: its own tools, connectors, and content at URLs. It needs Usage. It forwards only harmless headers, and Headers:
	// names, or beginnings of names before an asterisk.
	Closed  bool     `json:"closed,omitempty"`
	Headers []string `json:"headers,omitempty"`

	// Usage names the wire format of the responses whose token counts the proxy reports: see [Usages]. Empty: none.
	Usage string `json:"usage,omitempty"`
	// Record is a host file that receives one [UsageRecord] as JSON a line, before the client gets a response's end. Create
	// makes it with the caller's rights, as it does Log.
	Record string `json:"record,omitempty"`

	// Gate is the caller's end for the proxy: it is asked before each request is forwarded. See [GateMessage]. nil: no
	// question. The caller closes it after Create. Gated is set by Create; without its Gate such a route forwards nothing.
	Gate  *os.File `json:"-"`
	Gated bool     `json:"gated,omitempty"`
}

// MinRouteToken is the least length of a Route's Token, in bytes.
const MinRouteToken = 16

// String describes the route without its credentials.
func (r Route) String() string {
	return fmt.Sprintf("127.0.0.1:%d to %s (%s)", r.Port, r.To, strings.Join(r.Allow, ", "))
}

// GoString omits the credentials from %#v as well.
func (r Route) GoString() string { return "runner.Route(" + r.String() + ")" }

// Public returns the route without its credentials.
func (r Route) Public() Route {
	r.Token, r.Header, r.Gate = "", nil, nil
	return r
}

// Usages are the wire formats of language models' HTTP interfaces that the proxy can read token counts from: the
// Messages, Responses, Chat Completions and GenerateContent interfaces, each as JSON and as an SSE stream.
var Usages = []string{"messages", "responses", "chat", "generate"}

// UsageRecord holds the token counts of one request to a language model.
type UsageRecord struct {
	RequestID     string    `json:"requestId"` // the server's, from a response header or the body
	Time          time.Time `json:"ts"`
	Status        int       `json:"status"` // of the HTTP response
	Model         string    `json:"model,omitempty"`
	Input         int64     `json:"input"`  // tokens, without the cache's
	Output        int64     `json:"output"` // tokens
	CacheCreation int64     `json:"cache_creation"`
	CacheRead     int64     `json:"cache_read"`
	Reasoning     int64     `json:"reasoning,omitempty"` // part of Output
	Cut           bool      `json:"cut,omitempty"`       // the response ended early: the counts are a lower bound
	Missing       bool      `json:"missing,omitempty"`   // a successful response without token counts
	Malformed     bool      `json:"malformed,omitempty"` // a response whose token counts could not be parsed

	Number    int64  `json:"number,omitempty"`     // of the [GateMessage] that asked for it
	Asked     string `json:"asked,omitempty"`      // the model that the request names
	Sent      int64  `json:"sent,omitempty"`       // bytes of the request's body
	Got       int64  `json:"got,omitempty"`        // bytes of the response's body
	MaxOutput int64  `json:"max_output,omitempty"` // the most tokens that the request asks for
	Searches  int64  `json:"searches,omitempty"`   // of the web, by the provider, which charges for each

	Fault      string   `json:"fault,omitempty"`       // what the server says of a fault of its own: the message of a 5xx response
	RetryAfter Duration `json:"retry_after,omitempty"` // of a 429, 503 or 529 response: until the limit is reset, if the server names it
}
