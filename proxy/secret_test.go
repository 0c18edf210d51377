package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"demesne/proxy/policy"
)

const value = "real-value-123"

func secret(t *testing.T, host, header string) Secret {
	t.Helper()
	s, err := NewSecret("TOKEN", value, host, header)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// told replaces the value in what the vault returns, and so shows that the vault received it.
const told = "THE-VALUE"

// vault returns a rig with a secret for api.test, whose server returns what it received. For /echo it returns
// that unchanged.
func vault(t *testing.T, s Secret, p policy.Policy) (*rig, *tls.Config) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		said := fmt.Sprintf("%s %s auth=%q basic=%s:%s body=%q", r.Host, r.URL.Path, r.Header.Get("Authorization"), user, password, b)
		if r.URL.Path != "/echo" {
			io.WriteString(w, strings.ReplaceAll(said, value, told))
			return
		}
		if name := r.Header.Get("Authorization"); strings.HasPrefix(name, "Bare ") {
			name = strings.TrimPrefix(name, "Bare ")
			w.Header().Set("X-"+name, "1")
			w.Header()[strings.ToLower(name)] = []string{"2"}
			w.Header().Set("Trailer", "Y-"+name)
			defer w.Header().Set("Y-"+name, "3")
			defer w.Header().Set(http.TrailerPrefix+"Z-"+name, "4")
			io.WriteString(w, "named")
			return
		}
		w.Header().Set("X-Echo", r.Header.Get("Authorization")+r.Header.Get("Accept-Encoding"))
		w.Header().Set("Trailer", "X-Behind")
		defer w.Header().Set("X-Behind", r.Header.Get("Authorization"))
		defer w.Header().Set(http.TrailerPrefix+"X-Not-Told-Before", r.Header.Get("Authorization"))
		for _, c := range said {
			fmt.Fprintf(w, "%c", c)
			http.NewResponseController(w).Flush()
		}
	}, "api.test")
	r := newRig(t, Config{Policy: p, Secrets: []Secret{s}, Roots: ca.pool}, "api.test", "other.test")
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(r.proxy.CA()) {
		t.Fatal("no CA")
	}
	return r, &tls.Config{RootCAs: trust, ServerName: "api.test"}
}

// request sends text over a connection and returns the response's status and body.
func request(t *testing.T, c net.Conn, text string) (int, string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestSecret checks for each entry point that the host receives the value and the sandbox never does.
func TestSecret(t *testing.T) {
	s := secret(t, "api.test", "")
	r, trust := vault(t, s, allow(t, "api.test", "other.test"))
	for way, open := range r.ways("api.test", 443) {
		c := tls.Client(open(), trust)
		for range 2 { // keep-alive
			_, body := request(t, c, "GET /x HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer "+s.Placeholder()+"\r\n\r\n")
			if !strings.Contains(body, `auth="Bearer `+told+`"`) {
				t.Errorf("%s: %s", way, body)
			}
		}
		basic := base64.StdEncoding.EncodeToString([]byte("me:" + s.Placeholder()))
		if _, body := request(t, c, "GET /x HTTP/1.1\r\nHost: api.test\r\nAuthorization: basic "+basic+"\r\n\r\n"); !strings.Contains(body, "basic=me:"+told) {
			t.Errorf("%s: %s", way, body)
		}
	}
	r.proxy.Close()
	for _, rec := range r.records(10) {
		if rec.Via == "dns" {
			continue
		}
		if rec.Via != "http" || rec.Request != "GET /x" || strings.Contains(fmt.Sprintf("%+v", rec), value) {
			t.Errorf("%+v", rec)
		}
	}
	if out := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(out, value) {
		t.Error(out)
	}
}

// TestEscapeN27Misuse checks that a placeholder in any other place is denied or left unchanged.
func TestEscapeN27Misuse(t *testing.T) {
	s := secret(t, "api.test", "X-Token")
	r, trust := vault(t, s, allow(t, "api.test", "other.test"))
	seen := make(chan string, 10)
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) { seen <- fmt.Sprint(r.Header, r.URL) })
	serveHTTP(t, "8.0.0.3:80", func(w http.ResponseWriter, r *http.Request) { seen <- fmt.Sprint(r.Header, r.URL) })
	for text, want := range map[string]string{
		"GET http://api.test/ HTTP/1.1\r\nHost: x\r\nX-Token: " + s.Placeholder() + "\r\n\r\n":   `"TOKEN" may be sent over TLS only`,
		"GET http://other.test/ HTTP/1.1\r\nHost: x\r\nX-Token: " + s.Placeholder() + "\r\n\r\n": `"TOKEN" may be sent over TLS only`,
		"GET http://api.test/?q=" + s.Placeholder() + " HTTP/1.1\r\nHost: x\r\n\r\n":             `"TOKEN" in the URL`,
	} {
		resp := r.raw(text)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 403 || !strings.Contains(string(b), want) {
			t.Errorf("%q: %s %s", text, resp.Status, b)
		}
	}
	open := r.ways("api.test", 443)["name"]
	for text, want := range map[string]string{
		"GET /" + s.Placeholder() + " HTTP/1.1\r\nHost: api.test\r\n\r\n":                    `"TOKEN" in the URL`,
		"GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: " + s.Placeholder() + "\r\n\r\n": `"TOKEN" may be sent in the header X-Token only`,
		"GET / HTTP/1.1\r\nHost: other.test\r\nX-Token: " + s.Placeholder() + "\r\n\r\n":     `HTTP names host "other.test", not "api.test"`,
	} {
		if code, body := request(t, tls.Client(open(), trust), text); code != 403 || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", text, code, body)
		}
	}
	select {
	case got := <-seen:
		t.Errorf("a server saw %s", got)
	default:
	}
}

// TestSecretSet checks that a header is set in requests to the secret's host over TLS, in no others, and that the value
// does not come back.
func TestSecretSet(t *testing.T) {
	s, err := secret(t, "api.test", "Authorization").Setting("Bearer ${}")
	if err != nil {
		t.Fatal(err)
	}
	r, trust := vault(t, s, allow(t, "api.test", "other.test"))
	seen := make(chan string, 10)
	for _, at := range []string{"8.0.0.2:80", "8.0.0.3:80"} {
		serveHTTP(t, at, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") })
	}
	open := r.ways("api.test", 443)["name"]
	for _, own := range []string{"", "Authorization: Basic eDp5\r\nauthorization: second\r\n"} {
		code, body := request(t, tls.Client(open(), trust), "GET / HTTP/1.1\r\nHost: api.test\r\n"+own+"\r\n")
		if code != 200 || !strings.Contains(body, `auth="Bearer `+told+`"`) {
			t.Errorf("%q: %d %s", own, code, body)
		}
		code, body = request(t, tls.Client(open(), trust), "GET /echo HTTP/1.1\r\nHost: api.test\r\n"+own+"\r\n")
		if code != 200 || strings.Contains(body, value) {
			t.Errorf("%q: %d %s", own, code, body)
		}
	}
	for _, host := range []string{"api.test", "other.test"} {
		r.raw("GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := <-seen; got != "" {
			t.Errorf("%s got %q", host, got)
		}
	}
}

// TestSettingRefused checks the templates that cannot be set.
func TestSettingRefused(t *testing.T) {
	for _, c := range []struct{ header, template string }{
		{"", "${}"}, {"X-A", "x"}, {"X-A", "${}${}"}, {"X-A", "${}\r\nX-B: 1"}, {"host", "${}"}, {"Content-Length", "${}"}, {"Transfer-Encoding", "${}"},
	} {
		if s, err := secret(t, "api.test", c.header).Setting(c.template); err == nil {
			t.Errorf("%+v: %q", c, s.set)
		}
	}
}

// TestSecretBody checks that a body is sent unchanged.
func TestSecretBody(t *testing.T) {
	s := secret(t, "api.test", "")
	r, trust := vault(t, s, allow(t, "api.test"))
	text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: %d\r\n\r\n%s", len(s.Placeholder()), s.Placeholder())
	if _, body := request(t, tls.Client(r.named("api.test", 443), trust), text); !strings.Contains(body, s.Placeholder()) || strings.Contains(body, told) {
		t.Error(body)
	}
}

// TestEscapeN26Reflection checks that a host cannot return the value to the sandbox: in a header, a trailer, a
// body of single bytes, or basic authentication. Lengths do not change.
func TestEscapeN26Reflection(t *testing.T) {
	s := secret(t, "api.test", "")
	r, trust := vault(t, s, allow(t, "api.test"))
	open := r.ways("api.test", 443)["name"]
	for _, auth := range []string{"Bearer " + s.Placeholder(), "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+s.Placeholder()))} {
		c := tls.Client(open(), trust)
		io.WriteString(c, "GET /echo HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nAccept-Encoding: gzip\r\nAuthorization: "+auth+"\r\n\r\n")
		answer, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(answer), "identity\r\n") || strings.Count(string(answer), "*") < 4*len(value) {
			t.Errorf("%s: %v", answer, err)
		}
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte("me:" + value))[4:18]} {
			if strings.Contains(string(answer), form) {
				t.Errorf("%q came in: %s", form, answer)
			}
		}
	}
	r.proxy.Close()
}

// TestEscapeN36HeaderNames checks that the name of a header or a trailer cannot carry a value either, in any case
// of letters.
func TestEscapeN36HeaderNames(t *testing.T) {
	s := secret(t, "api.test", "")
	r, trust := vault(t, s, allow(t, "api.test"))
	c := tls.Client(r.named("api.test", 443), trust)
	io.WriteString(c, "GET /echo HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\nAuthorization: Bare "+s.Placeholder()+"\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "named") {
		t.Fatalf("%s: %v", answer, err)
	}
	if strings.Contains(strings.ToLower(string(answer)), value) {
		t.Errorf("the value came in: %s", answer)
	}
	blank := strings.Repeat("*", len(value))
	for _, line := range []string{"X-" + blank + ": 1", blank + ": 2", "Y-" + blank + ": 3", "Z-" + blank + ": 4"} {
		if !strings.Contains(string(answer), line+"\r\n") {
			t.Errorf("no %q in %s", line, answer)
		}
	}
}

// TestSecretPort checks that a secret for another port than 443 is swapped and blanked on that port only.
// Elsewhere it is denied or left unchanged.
func TestSecretPort(t *testing.T) {
	s := secret(t, "api.test:8443", "")
	ca := newAuthority(t)
	echo := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %q", r.Host, r.Header.Get("Authorization"))
	}
	for _, at := range []string{"8.0.0.2:8443", "8.0.0.2:443"} {
		ca.serveHTTPS(t, at, echo, "api.test")
	}
	serveHTTP(t, "8.0.0.2:80", echo)
	r := newRig(t, Config{Policy: allow(t, "api.test:*"), Secrets: []Secret{s}, Roots: ca.pool}, "api.test")
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(r.proxy.CA())
	text := "GET / HTTP/1.1\r\nHost: api.test:8443\r\nAuthorization: " + s.Placeholder() + "\r\n\r\n"
	for way, open := range r.ways("api.test", 8443) {
		c := tls.Client(open(), &tls.Config{RootCAs: trust, ServerName: "api.test"})
		if code, body := request(t, c, text); code != 200 || body != `api.test:8443 "`+strings.Repeat("*", len(value))+`"` {
			t.Errorf("%s: %d %s", way, code, body)
		}
	}
	tunnel, _, _ := r.connect("api.test:443")
	c := tls.Client(tunnel, &tls.Config{RootCAs: ca.pool, ServerName: "api.test"})
	if _, body := request(t, c, text); !strings.Contains(body, s.Placeholder()) {
		t.Errorf("port 443: %s", body)
	}
	if resp := r.raw(strings.Replace(text, "GET /", "GET http://api.test/", 1)); resp.StatusCode != 403 {
		t.Errorf("port 80: %s", resp.Status)
	}
}

// TestEscapeN8Intercepted checks that, where the proxy ends TLS, it denies another Host inside, and any path or
// method that the rule does not cover.
func TestEscapeN8Intercepted(t *testing.T) {
	rule, err := allow(t, "api.test").Allowed()[0].Requests([]string{"GET"}, "/v1/*")
	if err != nil {
		t.Fatal(err)
	}
	r, trust := vault(t, secret(t, "api.test", ""), policy.Policy{}.Allow(rule))
	open := r.ways("api.test", 443)["connect"]
	for text, want := range map[string]int{
		"GET /v1/x HTTP/1.1\r\nHost: api.test\r\n\r\n":                    200,
		"GET /v2/x HTTP/1.1\r\nHost: api.test\r\n\r\n":                    403,
		"DELETE /v1/x HTTP/1.1\r\nHost: api.test\r\n\r\n":                 403,
		"GET /v1/x HTTP/1.1\r\nHost: evil.test\r\n\r\n":                   403,
		"GET https://evil.test/v1/x HTTP/1.1\r\nHost: api.test\r\n\r\n":   403,
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n":        403,
		"GET /v1/x HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n": 400,
		"GET /v1/x HTTP/1.1\r\nHost: api.test\r\nX: a\x00b\r\n\r\n":       400,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                403,
	} {
		if code, body := request(t, tls.Client(open(), trust), text); code != want {
			t.Errorf("%q: %d %s", text, code, body)
		}
	}
}

// TestSecretServer checks that the value is sent only to a server that the proxy has verified.
func TestSecretServer(t *testing.T) {
	s := secret(t, "api.test", "")
	r, trust := vault(t, s, allow(t, "api.test"))
	r.proxy.web().forward.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	code, body := request(t, tls.Client(r.named("api.test", 443), trust), "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: "+s.Placeholder()+"\r\n\r\n")
	if code != 502 || !strings.Contains(body, "certificate") {
		t.Error(code, body)
	}
}

// TestOthersStayEncrypted checks that the proxy does not end TLS to hosts without secrets.
func TestOthersStayEncrypted(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.3:443", hello200, "other.test")
	r, _ := vault(t, secret(t, "api.test", ""), allow(t, "api.test", "other.test"))
	if code, body, err := get(t, r.client(ca), "https://other.test/"); err != nil || code != 200 {
		t.Error(code, body, err)
	}
	if (&Proxy{}).CA() != nil {
		t.Error("a CA without secrets")
	}
}

func TestNewSecretRefused(t *testing.T) {
	for _, c := range []struct{ value, host, header, want string }{
		{"", "api.test", "", `make secret "T": its value is empty, or not valid in a header`},
		{"a\r\nb", "api.test", "", `make secret "T": its value is empty, or not valid in a header`},
		{"x", "api.test", "a b", `make secret "T": "a b" is not a header name`},
		{"x", "api.test:0", "", `make secret "T": port "0" is not in 1-65535`},
		{"x", "*.test", "", `make secret "T": parse name "*.test": not a host name: contains '*'`},
	} {
		if _, err := NewSecret("T", c.value, c.host, c.header); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestSecretSurvives checks that a proxy can replace another: it accepts the sandbox's placeholder, and keeps the
// CA that the sandbox trusts.
func TestSecretSurvives(t *testing.T) {
	s := secret(t, "api.test", "")
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization") == value) }, "api.test")
	first, err := New(Config{Secrets: []Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	again := secret(t, "api.test", "").WithPlaceholder(s.Placeholder())
	r := newRig(t, Config{Policy: allow(t, "api.test"), Secrets: []Secret{again}, Roots: ca.pool, CA: first.Authority()}, "api.test")
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(first.CA())
	raw, _, _ := r.connect("api.test:443")
	c := tls.Client(raw, &tls.Config{RootCAs: trust, ServerName: "api.test"})
	defer c.Close()
	if code, body := request(t, c, "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: "+s.Placeholder()+"\r\n\r\n"); code != 200 || body != "true" {
		t.Errorf("%d %q", code, body)
	}
	if _, err := New(Config{Secrets: []Secret{s}, CA: []byte("none")}); err == nil {
		t.Error("an invalid CA was accepted")
	}
}

// TestServeGo checks that the Go proxy reads from its two servers and allows nothing else.
func TestServeGo(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.Host, r.RequestURI) }, policy.GoModules, policy.GoChecksums)
	rules := policy.GoProxy()
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(rules...), Roots: ca.pool}, policy.GoModules)
	r.world.at[policy.GoChecksums+"."] = r.world.at[policy.GoModules+"."]
	at := r.serve("127.0.0.1:0", r.proxy.ServeGo)
	for text, want := range map[string]string{
		"GET /a%21b/@v/list HTTP/1.1\r\nHost: x\r\n\r\n":                              "200 GET " + policy.GoModules + "/a%21b/@v/list",
		"GET http://evil.test/a HTTP/1.1\r\nHost: evil.test\r\n\r\n":                  "200 GET " + policy.GoModules + "/a",
		"GET /sumdb/" + policy.GoChecksums + "/supported HTTP/1.1\r\nHost: x\r\n\r\n": "200 ",
		"GET /sumdb/" + policy.GoChecksums + "/tile/8/0 HTTP/1.1\r\nHost: x\r\n\r\n":  "200 GET " + policy.GoChecksums + "/tile/8/0",
		"GET /sumdb/sum.other.org/latest HTTP/1.1\r\nHost: x\r\n\r\n":                 "200 GET " + policy.GoModules + "/sumdb/sum.other.org/latest",
		"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx":                    "405 blocked by demesne: \"" + policy.GoModules + "\": the Go proxy accepts GET and HEAD, not \"PUT\"",
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n":               "405 blocked",
	} {
		code, body := request(t, r.dial(at), text)
		if got := fmt.Sprint(code, " ", body); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if _, resp, _ := r.connect(policy.GoModules + ":443"); resp.StatusCode != 403 {
		t.Errorf("a tunnel to it: %s", resp.Status)
	}
}
