package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"demesne/proxy/policy"
)

// testGroup is a group whose members are at addresses of the test.
type testGroup map[string]string

func (g testGroup) Name() string           { return "shop" }
func (g testGroup) Has(member string) bool { return g[member] != "" }
func (g testGroup) Dial(ctx context.Context, member string, port uint16) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", g[member], port))
}

// TestGroup checks that members are reached by name in each way, past the host's own proxy, and that no rule is suggested
// for them.
func TestGroup(t *testing.T) {
	echo(t, "8.0.0.9:443") // any protocol, on the ports of TLS too
	serveHTTP(t, "8.0.0.9:7080", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s at %s", body, r.Host)
	})
	up, err := UpstreamFrom(func(name string) string {
		return map[string]string{"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Group: testGroup{"db": "8.0.0.9"}, Upstream: up})
	tunnel, _, _ := r.connect("db:443")
	for _, c := range []net.Conn{tunnel, r.named("db", 443)} {
		fmt.Fprint(c, "hi")
		b := make([]byte, 2)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hi" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
	}
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr})}}
	for _, body := range []string{"one", "two"} { // the second one on the same connection
		resp, err := client.Post("http://db:7080/", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); string(got) != body+" at db:7080" {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	}
	if _, resp, body := r.connect("web:443"); resp.StatusCode != 403 {
		t.Errorf("no member: %d %s", resp.StatusCode, body)
	}
	log := r.records(6)
	for _, rec := range log {
		if member := rec.Host == "db"; member != (rec.Group == "shop") || member != (rec.Verdict == Allowed) || rec.Rule != "" {
			t.Errorf("%+v", rec)
		}
	}
	if words := Suggest(log); len(words) > 0 {
		t.Errorf("suggested %q", words)
	}
	if b := Replay(slices.DeleteFunc(log, func(r Record) bool { return r.Host == "web" }), policy.Policy{}); len(b) > 0 {
		t.Errorf("replayed %+v", b)
	}
}

// TestEscapeN43Names checks that no member takes the place of a host that a rule or a secret names.
func TestEscapeN43Names(t *testing.T) {
	s, err := NewSecret("TOKEN", "value", "vault", "")
	if err != nil {
		t.Fatal(err)
	}
	members := testGroup{"db": "8.0.0.9", "vault": "8.0.0.9", "intranet": "8.0.0.9"}
	r := newRig(t, Config{Group: members, Policy: allow(t, "intranet:8080", "*.corp.test", "vault"), Secrets: []Secret{s}})
	for name, group := range map[string]string{"db": "shop", "intranet": "", "vault": ""} {
		n, err := policy.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := r.proxy.resolves(n); d.Group != group {
			t.Errorf("%s resolves: %+v", name, d)
		}
		if d := r.proxy.decide(policy.Query{Name: n, Port: 7000}); d.Group != group {
			t.Errorf("%s: %+v", name, d)
		}
	}
	r = newRig(t, Config{Group: members, Policy: policy.Policy{}.Allow(policy.Everything()), Secrets: []Secret{s}})
	for name, group := range map[string]string{"db": "shop", "vault": ""} {
		n, _ := policy.ParseName(name)
		if d := r.proxy.decide(policy.Query{Name: n, Port: 7000}); d.Group != group {
			t.Errorf("%s, where everything is allowed: %+v", name, d)
		}
	}
}
