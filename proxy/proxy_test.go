package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"demesne/proxy/policy"
)

func hello200(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s", r.Host) }

// client returns an HTTP client that uses the proxy.
func (r *rig) client(a *authority) *http.Client {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr})}
	if a != nil {
		tr.TLSClientConfig = &tls.Config{RootCAs: a.pool}
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func get(t testing.TB, c *http.Client, u string) (int, string, error) {
	t.Helper()
	resp, err := c.Get(u)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestConnect(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", hello200, "good.test")
	r := newRig(t, Config{Sandbox: "s1", Policy: allow(t, "good.test")}, "good.test", "bad.test")
	code, body, err := get(t, r.client(ca), "https://good.test/")
	if err != nil || code != 200 || body != "hello from good.test" {
		t.Fatal(code, body, err)
	}
	if _, _, err := get(t, r.client(ca), "https://bad.test/"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Error(err)
	}
	r.proxy.Close()
	recs := r.records(2)
	want := map[string]string{"good.test": `allowed by rule "good.test"`, "bad.test": "no rule"}
	for _, rec := range recs {
		if rec.Reason != want[rec.Host] || rec.Via != "connect" || rec.Port != 443 || rec.Sandbox != "s1" || (rec.Verdict == "allowed") != (rec.Host == "good.test") {
			t.Errorf("%+v", rec)
		}
		if rec.Verdict == "allowed" && (rec.In < 100 || rec.Out < 100 || rec.Address != "8.0.0.2:443" || rec.Rule != "good.test") {
			t.Errorf("%+v", rec)
		}
	}
	if b := r.proxy.Blocked(); len(b) != 1 || b[0] != (Blocked{Host: "bad.test", Port: 443, Reason: "no rule", Allow: "bad.test", Times: 1}) {
		t.Errorf("%+v", b)
	}
}

// TestConnectPipelined checks that bytes in one packet with the CONNECT are not lost.
func TestConnectPipelined(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "good.test:*")}, "good.test")
	c := r.dial(r.addr)
	fmt.Fprint(c, "CONNECT good.test:7 HTTP/1.1\r\n\r\nearly")
	want := "HTTP/1.1 200 Connection established\r\n\r\nearly"
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("%q %v", b, err)
	}
	c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
	if rec := r.records(1)[0]; rec.In != 5 || rec.Out != 5 {
		t.Errorf("%+v", rec)
	}
}

// TestMessages checks that the error text names the target and the reason.
func TestMessages(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test:1", "gone.test", "inside.test")}, "good.test")
	r.world.at["inside.test."] = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	for target, want := range map[string]string{
		"bad.test:443":    "403 blocked by demesne: bad.test:443: no rule\n",
		"good.test:2":     "403 blocked by demesne: good.test:2: rule \"good.test:1\" does not cover port 2\n",
		"good.test:1":     "502 demesne could not reach good.test:1: dial tcp 8.0.0.2:1: connect: connection refused\n",
		"gone.test:443":   "502 demesne could not reach gone.test:443: resolve \"gone.test\": lookup gone.test.: no such host\n",
		"inside.test:443": "403 blocked by demesne: inside.test:443: inside.test resolves to 10.0.0.1 (private), which no rule lists\n",
		"[::1]:443":       "403 blocked by demesne: [::1]:443: no rule\n",
	} {
		_, resp, body := r.connect(target)
		if got := fmt.Sprint(resp.StatusCode, " ", body); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	code, body, err := get(t, r.client(nil), "http://bad.test/x")
	if err != nil || code != 403 || body != "blocked by demesne: bad.test:80: no rule\n" {
		t.Error(code, body, err)
	}
	code, body, err = get(t, r.client(nil), "http://gone.test/x")
	if err != nil || code != 502 || body != "demesne could not reach gone.test:80: resolve \"gone.test\": lookup gone.test.: no such host\n" {
		t.Error(code, body, err)
	}
}

func TestForward(t *testing.T) {
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %q %v", r.Method, r.RequestURI, r.Host, b, r.Header["Proxy-Authorization"])
	})
	r := newRig(t, Config{Policy: allow(t, "good.test")}, "good.test")
	req, _ := http.NewRequest("POST", "http://GOOD.test./a%2Fb?c=d", strings.NewReader("body"))
	req.Header.Set("Proxy-Authorization", "Basic eHg=")
	resp, err := r.client(nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := `POST /a%2Fb?c=d good.test "body" []`; string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	if rec := r.records(1)[0]; rec.Request != "POST /a%2Fb" || rec.Out != 4 || rec.In != int64(len(b)) || rec.Via != "http" || rec.Address != "8.0.0.2:80" {
		t.Errorf("%+v", rec)
	}
}

// TestNamed checks that a program without proxy settings reaches a name through DNS, on any port and with any
// protocol.
func TestNamed(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", hello200, "good.test")
	serveHTTP(t, "8.0.0.2:80", hello200)
	echo(t, "8.0.0.2:5432")
	r := newRig(t, Config{Policy: allow(t, "good.test:*")}, "good.test")
	c := tls.Client(r.named("good.test", 443), &tls.Config{RootCAs: ca.pool, ServerName: "good.test"})
	if err := c.Handshake(); err != nil {
		t.Error(err)
	}
	h := r.named("good.test", 80)
	for range 2 { // keep-alive
		fmt.Fprint(h, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
		b := make([]byte, 1000)
		if n, err := h.Read(b); err != nil || !strings.Contains(string(b[:n]), "hello from good.test") {
			t.Errorf("%q %v", b[:n], err)
		}
	}
	e := r.named("good.test", 5432)
	fmt.Fprint(e, "ping")
	if _, err := io.ReadFull(e, make([]byte, 4)); err != nil {
		t.Error(err)
	}
}

func TestNamedRefused(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test:22")}, "good.test")
	for _, port := range []uint16{23, 22} {
		at := netip.AddrPortFrom(r.address("good.test"), port).String()
		r.serve(at, r.proxy.ServeNamed)
		if n, err := talk(at); err == nil {
			t.Errorf("port %d: %d bytes and no error", port, n)
		}
	}
	r.blocked(`rule "good.test:22" does not cover port 23`)
	at := r.serve("198.19.77.77:9", r.proxy.ServeNamed)
	if _, err := talk(at); err == nil {
		t.Error("an address of no name worked")
	}
	r.blocked("an address that demesne's DNS assigned to no name")
}

// TestSetPolicy checks that a new policy applies to later connections and that open ones continue.
func TestSetPolicy(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{}, "good.test")
	if _, resp, _ := r.connect("good.test:7"); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
	r.proxy.SetPolicy(allow(t, "good.test:*"))
	c, resp, _ := r.connect("good.test:7")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	r.proxy.SetPolicy(policy.Policy{})
	if _, resp, _ := r.connect("good.test:7"); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "good.test")}, "good.test")
	c, _, _ := r.connect("good.test:7")
	idle := r.dial(r.addr)
	r.proxy.Close()
	r.proxy.Close()
	for _, c := range []net.Conn{c, idle} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlived Close")
		}
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("a listener outlived Close")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || r.proxy.ServeProxy(l) != nil {
		t.Error("serving after Close")
	}
}

func TestBudgets(t *testing.T) {
	echo(t, "8.0.0.2:7")
	serveHTTP(t, "8.0.0.3:80", hello200)
	p := policy.Policy{}
	for word, b := range map[string]policy.Budget{"bytes.test:7": {Bytes: 1 << 20}, "few.test": {Requests: 2}, "one.test:7": {Connections: 1}} {
		rule, _ := policy.ParseRule(word)
		p = p.Allow(rule.Limited(b))
	}
	r := newRig(t, Config{Policy: p}, "bytes.test", "few.test")
	r.world.at["one.test."] = r.world.at["bytes.test."]

	c, _, _ := r.connect("bytes.test:7")
	go io.Copy(c, strings.NewReader(strings.Repeat("x\n", 1<<20)))
	if n, _ := io.Copy(io.Discard, c); n > 1<<20 {
		t.Errorf("%d bytes came back of a budget of 1 MiB for both ways", n)
	}
	if _, resp, body := r.connect("bytes.test:7"); resp.StatusCode != 403 || !strings.Contains(body, "its budget of 1048576 bytes is used up") {
		t.Error(resp.Status, body)
	}
	for i, want := range []int{200, 200, 403} {
		if code, body, err := get(t, r.client(nil), "http://few.test/"); err != nil || code != want {
			t.Error(i, code, body, err)
		}
	}
	for _, want := range []int{200, 403} {
		if _, resp, _ := r.connect("one.test:7"); resp.StatusCode != want {
			t.Error(resp.Status)
		}
	}
}

// talk reads from a connection to at until its end, and returns the number of bytes and the error.
func talk(at string) (int64, error) {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	return io.Copy(io.Discard, c)
}

func TestChanges(t *testing.T) {
	deny := func(p policy.Policy, word string) policy.Policy { return p.Deny(allow(t, word).Allowed()...) }
	a, ab := allow(t, "a.test:443"), allow(t, "a.test:443", "b.test")
	for _, c := range []struct {
		before, after policy.Policy
		want          string
	}{
		{a, a, ""},
		{a, ab, `b.test: rule "b.test" was added to the allowed` + "\n"},
		{ab, deny(a, "b.test"), `b.test: rule "b.test" was added to the denied` + "\n" + `b.test: rule "b.test" was removed from the allowed` + "\n"},
		{deny(a, "*.c.test"), a, `*.c.test: rule "*.c.test" was removed from the denied` + "\n"},
	} {
		got := ""
		for _, r := range changes(c.before, c.after) {
			if r.Via != "policy" || r.Verdict != Changed {
				t.Errorf("%+v", r)
			}
			got += r.Rule + ": " + r.Reason + "\n"
		}
		if got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
