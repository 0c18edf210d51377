package proxy

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"demesne/proxy/redact"
)

// TestRouteValidate checks which routes are refused, and that no error contains a credential.
func TestRouteValidate(t *testing.T) {
	good := Route{Port: 8088, To: "https://api.test/v1", Allow: []string{"POST /messages", "GET /"}, Token: routeToken, Header: map[string]string{"Authorization": "Bearer " + realToken}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Route){
		"not a URL, or a URL with a user":       func(r *Route) { r.To = "https://me:" + realToken + "@api.test" },
		"not a URL, or":                         func(r *Route) { r.To = "https://%zz" + realToken },
		"not an http":                           func(r *Route) { r.To = "ftp://api.test" },
		"not an http or https":                  func(r *Route) { r.To = "" },
		"has a query":                           func(r *Route) { r.To = "https://api.test?a" },
		"or a path that":                        func(r *Route) { r.To = "https://api.test/a/../b" },
		"path that is not clean":                func(r *Route) { r.To = "https://api.test/a%2fb" },
		"it allows no request":                  func(r *Route) { r.Allow = nil },
		`request "/x": not a method`:            func(r *Route) { r.Allow = []string{"/x"} },
		`request "post /x": not`:                func(r *Route) { r.Allow = []string{"post /x"} },
		`request "CONNECT /x": not`:             func(r *Route) { r.Allow = []string{"CONNECT /x"} },
		`request "POST x": its path`:            func(r *Route) { r.Allow = []string{"POST x"} },
		`request "POST /x/": its path`:          func(r *Route) { r.Allow = []string{"POST /x/"} },
		`request "POST /a/*?b": its path`:       func(r *Route) { r.Allow = []string{"POST /a/*?b"} },
		`request "POST /a;b": its path`:         func(r *Route) { r.Allow = []string{"POST /a;b"} },
		`usage "x": unknown`:                    func(r *Route) { r.Usage = "x" },
		`query parameter "API_KEY": cannot`:     func(r *Route) { r.Query = []string{"beta", "API_KEY"} },
		`usage "" is not an interface`:          func(r *Route) { r.Closed = true },
		`header "*": cannot`:                    func(r *Route) { r.Closed, r.Usage, r.Headers = true, "chat", []string{"*"} },
		`header "x-api-key": cannot`:            func(r *Route) { r.Closed, r.Usage, r.Headers = true, "chat", []string{"x-api-key"} },
		`header "Host": cannot`:                 func(r *Route) { r.Header = map[string]string{"Host": "x"} },
		`header "a b": cannot`:                  func(r *Route) { r.Header = map[string]string{"a b": "x"} },
		`header "X-Key": its value`:             func(r *Route) { r.Header = map[string]string{"X-Key": realToken + "\n"} },
		`header "Transfer-Encoding": cannot be`: func(r *Route) { r.Header = map[string]string{"Transfer-Encoding": "x"} },
	} {
		r := good
		change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), realToken) || !strings.HasPrefix(err.Error(), "route on port 8088: ") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := New(Config{Routes: []Route{good, good}}); err == nil || !strings.Contains(err.Error(), "another route") {
		t.Error(err)
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	if p.ServeRoute(l, 1) == nil {
		t.Error("served without a route")
	}
}

// TestRoutePrivate checks which inserted headers are hidden in responses.
func TestRoutePrivate(t *testing.T) {
	in, err := parseInsertion(map[string]string{"Authorization": "Bearer abcdefgh", "X-Some-Key": "ijklmnop", "X-Version": "2026-01-02", "Beta": "feature-one"})
	if err != nil {
		t.Fatal(err)
	}
	if got := in.hidden.Text("abcdefgh ijklmnop 2026-01-02 feature-one"); got != "******** ******** 2026-01-02 feature-one" {
		t.Errorf("%q", got)
	}
	var none *redact.Values
	if none.Text("x") != "x" {
		t.Error("no values hide something")
	}
}

// FuzzRoutePath checks that a request is forwarded with a path of the allowlist only, and that its query has no
// credential.
func FuzzRoutePath(f *testing.F) {
	for _, s := range []string{"/v1/messages", "/v1/messages?key=1", "/v1%2fmessages", "//v1/messages", "/v1/x/../messages", "/v1/messages;a", "/v1/m%65ssages", "/", "/v1/messages?%6bey=1&a=b", "*"} {
		f.Add("POST", s)
	}
	rt, err := Route{To: "https://api.test", Allow: []string{"POST /v1/messages", "GET /"}, Query: []string{"a"}, Token: routeToken}.parse()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + routeToken + "\r\n\r\n")))
		if err != nil {
			return
		}
		path, query, err := rt.decide(r)
		if err != nil {
			if path != "" || query != "" || errors.Is(err, errNoToken) {
				t.Errorf("%q %q: %q %q, %v", method, target, path, query, err)
			}
			return
		}
		if !rt.allow[operation{r.Method, path}] || r.URL.Path != path || strings.Contains(strings.ToLower(query), "key=") && !strings.Contains(strings.ToLower(target), "=") {
			t.Errorf("%q %q: forwarded as %q %q", method, target, path, query)
		}
		for part := range strings.SplitSeq(query, "&") {
			if name, _, _ := strings.Cut(part, "="); part != "" && name != "a" && name != "%61" {
				t.Errorf("%q: the query keeps %q", target, part)
			}
		}
	})
}
