package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"demesne/proxy/policy"
)

// corporate runs a proxy that requires a password, at 8.0.0.9.
func corporate(t *testing.T) *atomic.Int32 {
	var asked atomic.Int32
	serveHTTP(t, "8.0.0.9:3128", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Proxy-Authorization") != "Basic bWU6c2VjcmV0" {
			http.Error(w, "who?", http.StatusProxyAuthRequired)
			return
		}
		if r.Method != http.MethodConnect {
			fmt.Fprintf(w, "corporate %s", r.RequestURI)
			return
		}
		up, err := net.Dial("tcp", map[string]string{"far.test:7": "8.0.0.2:7", "api.test:443": "8.0.0.2:443"}[r.RequestURI])
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		c, rw, _ := http.NewResponseController(w).Hijack()
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(up, rw); up.(*net.TCPConn).CloseWrite() }()
		io.Copy(c, up)
		c.Close()
	})
	return &asked
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestUpstream(t *testing.T) {
	echo(t, "8.0.0.2:7")
	asked := corporate(t)
	u, err := UpstreamFrom(environment("https_proxy", "http://me:secret@8.0.0.9:3128", "HTTP_PROXY", "me:secret@8.0.0.9:3128", "NO_PROXY", "near.test"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Policy: allow(t, "far.test:*", "near.test:*", "gone.test:*"), Upstream: u}, "near.test")
	c, resp, body := r.connect("far.test:7") // only the corporate proxy can resolve it
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status, body)
	}
	fmt.Fprint(c, "ping")
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	if code, body, err := get(t, r.client(nil), "http://far.test/x"); err != nil || code != 200 || body != "corporate http://far.test/x" {
		t.Error(code, body, err)
	}
	if _, resp, _ := r.connect("near.test:7"); resp.StatusCode != 200 || asked.Load() != 2 {
		t.Errorf("%s, %d asked", resp.Status, asked.Load())
	}
	if _, resp, _ := r.connect("evil.test:7"); resp.StatusCode != 403 || asked.Load() != 2 {
		t.Errorf("%s, %d asked", resp.Status, asked.Load())
	}
	if _, resp, body := r.connect("gone.test:7"); resp.StatusCode != 502 || !strings.Contains(body, "502 Bad Gateway") || strings.Contains(body, "secret") {
		t.Errorf("%s, %s", resp.Status, body)
	}
}

func TestUpstreamFrom(t *testing.T) {
	if u, err := UpstreamFrom(environment()); u != nil || err != nil {
		t.Error(u, err)
	}
	for value, want := range map[string]string{
		"socks5://me:secret@x": `read HTTP_PROXY: proxies of kind "socks5" are not supported`,
		"http://me:secret@":    "read HTTP_PROXY: not the URL of a proxy",
		"http://me:secret@%zz": "read HTTP_PROXY: not the URL of a proxy",
	} {
		if _, err := UpstreamFrom(environment("HTTP_PROXY", value)); err == nil || err.Error() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
	u, _ := UpstreamFrom(environment("HTTPS_PROXY", "https://p.test"))
	q, _ := policy.Ask("far.test", 22)
	if h := u.forConnect(q); h == nil || h.address() != "p.test:443" {
		t.Errorf("%+v", h)
	}
	if to, err := (*Upstream)(nil).forRequest(nil); to != nil || err != nil {
		t.Error(to, err)
	}
}
