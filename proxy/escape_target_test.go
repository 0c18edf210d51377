package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestEscapeN36Targets checks that only the targets /path, and http://host/path on the proxy's port, are
// forwarded. The path that the rules see is the path that is sent.
func TestEscapeN36Targets(t *testing.T) {
	seen := make(chan string, 100)
	requestLines(t, "8.0.0.2:80", seen)
	whole := allow(t, "allowed.test")
	root, _ := allow(t, "root.test").Allowed()[0].Requests(nil, "/")
	r := newRig(t, Config{Policy: whole.Allow(root)}, "allowed.test")
	r.world.at["root.test."] = r.world.at["allowed.test."]
	named := func(name, target string) *http.Response {
		c, _, _ := r.connect(name + ":80")
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, name)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%q: %v", target, err)
		}
		return resp
	}
	odd := []string{"http:DATA", "HTTP:DATA", "http:/DATA", "http:?DATA", "http:", "*", "DATA", "http:///DATA", "?DATA", "http:%2FDATA"}
	for _, target := range odd {
		if resp := named("allowed.test", target); resp.StatusCode/100 != 4 {
			t.Errorf("%q: %s", target, resp.Status)
		}
		if resp := r.raw("GET " + target + " HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); resp.StatusCode/100 != 4 {
			t.Errorf("of a proxy: %q: %s", target, resp.Status)
		}
	}
	select {
	case got := <-seen:
		t.Errorf("the server saw %q", got)
	default:
	}
	for target, want := range map[string]string{"/a": "/a", "http://root.test": "/", "http://root.test/": "/", "http://root.test?q": "/?q", "//x/y": "//x/y"} {
		name := "root.test"
		if !strings.Contains(target, name) {
			name = "allowed.test"
		}
		resp := named(name, target)
		if resp.StatusCode != 200 {
			b, _ := io.ReadAll(resp.Body)
			t.Errorf("%q: %s %s", target, resp.Status, b)
			continue
		}
		if got := <-seen; got != want {
			t.Errorf("%q: the server saw %q, want %q", target, got, want)
		}
	}
}

// requestLines answers each connection once and sends its first line to seen. Go's HTTP server would reject some
// of these lines after they have arrived.
func requestLines(t *testing.T, at string, seen chan<- string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			seen <- strings.TrimSuffix(strings.TrimPrefix(line, "GET "), " HTTP/1.1\r\n")
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			c.Close()
		}
	}()
}

// TestEscapeN36SecretTargets checks the same for TLS that ends in the proxy.
func TestEscapeN36SecretTargets(t *testing.T) {
	s := secret(t, "api.test", "")
	r, trust := vault(t, s, allow(t, "api.test"))
	open := r.ways("api.test", 443)["connect"]
	for _, target := range []string{"http:DATA", "http:/DATA", "*"} {
		code, body := request(t, tls.Client(open(), trust), "GET "+target+" HTTP/1.1\r\nHost: api.test\r\nAuthorization: "+s.Placeholder()+"\r\n\r\n")
		if code/100 != 4 {
			t.Errorf("%q: %d %s", target, code, body)
		}
	}
}

// TestRawDeniedRequests checks that a tcp:// rule does not bypass a rule that denies some requests. The proxy
// cannot read the requests of such a connection.
func TestRawDeniedRequests(t *testing.T) {
	serveHTTP(t, "8.0.0.2:80", hello200)
	deny, err := allow(t, "allowed.test").Allowed()[0].Requests([]string{"POST"}, "/x")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Policy: allow(t, "tcp://allowed.test:80").Deny(deny)}, "allowed.test")
	if _, resp, body := r.connect("allowed.test:80"); resp.StatusCode != 403 {
		t.Error(resp.Status, body)
	}
}
