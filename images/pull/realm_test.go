package pull

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"

	"demesne/images/events"
)

// TestRealm checks where the credentials of a registry may go.
func TestRealm(t *testing.T) {
	for _, c := range []struct {
		registry string
		plain    bool
		realm    string
		foreign  bool
		code     events.Code
	}{
		{registry: "registry.site.test", realm: "https://registry.site.test/token"},
		{registry: "registry.site.test:5000", realm: "https://REGISTRY.site.test.:8443/token"},
		{registry: "registry.site.test", realm: "https://auth.site.test/token"},
		{registry: "127.0.0.1:5000", realm: "https://127.0.0.1/token"},
		{registry: "[::1]:5000", realm: "https://[::1]/token"},
		{registry: "localhost:5000", realm: "https://localhost/token"},
		{registry: "127.0.0.1:5000", plain: true, realm: "http://127.0.0.1:5001/token"},
		{registry: "registry.site.test", realm: "https://site.test.evil.test/token", foreign: true},
		{registry: "registry.site.test", realm: "https://xsite.test/token", foreign: true},
		{registry: "registry.site.test", realm: "https://registry.site.test@evil.test/token", foreign: true},
		{registry: "a.co.uk", realm: "https://b.co.uk/token", foreign: true},
		{registry: "127.0.0.1:5000", realm: "https://127.0.0.2/token", foreign: true},
		{registry: "10.0.0.1", realm: "https://20.0.0.1/token", foreign: true},
		{registry: "registry.site.test", realm: "http://registry.site.test/token", code: events.CodeDenied},
		{registry: "registry.site.test", plain: true, realm: "http://auth.site.test/token", code: events.CodeDenied},
		{registry: "127.0.0.1:5000", plain: true, realm: "http://127.0.0.2:5000/token", code: events.CodeDenied},
		{registry: "registry.site.test", realm: "ftp://registry.site.test/token", code: events.CodeDenied},
		{registry: "registry.site.test", realm: "//registry.site.test/token", code: events.CodeDenied},
	} {
		u, err := url.Parse(c.realm)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := Realm(c.registry, c.plain, u)
		if foreign != c.foreign || (err != nil) != (c.code != "") || err != nil && Classify(err) != c.code {
			t.Errorf("%s of %s (%t): %t %v", c.realm, c.registry, c.plain, foreign, err)
		}
	}
}

// plainServer is a server without TLS that records which of its requests have credentials.
type plainServer struct {
	*httptest.Server
	mu     sync.Mutex
	leaked []string
}

func newPlainServer(t *testing.T) *plainServer {
	s := &plainServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Header.Get("Authorization") != "" || r.URL.Query().Has("account") || r.Method == http.MethodPost {
			s.leaked = append(s.leaked, r.Method+" "+r.URL.Path)
		}
		fmt.Fprint(w, `{"token":"x"}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestPullRealm checks that a password leaves TLS neither by the address of a token server nor by a redirect, that an
// identity token does not either, and that the user learns of a token server elsewhere.
func TestPullRealm(t *testing.T) {
	identity := `{"auths":{"HOST":{"auth":"bWU6c2VjcmV0","identitytoken":"i"}}}`
	for _, c := range []struct {
		name, auth string
		front      func(plain, host string) func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		{"realm", auth("HOST", "secret"), func(plain, _ string) func(http.ResponseWriter, *http.Request, http.Handler) {
			return challenge("http://" + plain + "/token")
		}},
		{"realm with an account", auth("HOST", "secret"), func(plain, _ string) func(http.ResponseWriter, *http.Request, http.Handler) {
			return challenge("http://" + plain + "/v2/?account=")
		}},
		{"realm for an identity token", identity, func(plain, _ string) func(http.ResponseWriter, *http.Request, http.Handler) {
			return challenge("http://" + plain + "/v2/")
		}},
		{"redirect of the token server", auth("HOST", "secret"), func(plain, host string) func(http.ResponseWriter, *http.Request, http.Handler) {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.URL.Path == "/token" {
					http.Redirect(w, r, "http://"+plain+"/token?a=b", http.StatusTemporaryRedirect)
					return
				}
				challenge("https://"+host+"/token")(w, r, next)
			}
		}},
		{"redirect with basic authentication", auth("HOST", "secret"), func(plain, _ string) func(http.ResponseWriter, *http.Request, http.Handler) {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if _, _, ok := r.BasicAuth(); ok {
					http.Redirect(w, r, "http://"+plain+r.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				basic(w, r, next)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, r := newPlainServer(t), newRegistry(t)
			ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
			o := r.options(t)
			write(t, o.System.AuthFilePath, strings.ReplaceAll(c.auth, "HOST", r.host))
			r.behave(c.front(plain.Listener.Addr().String(), r.host))
			_, err := Image(context.Background(), ref, o)
			if Classify(err) != events.CodeDenied {
				t.Errorf("%q: %v", Classify(err), err)
			}
			if len(plain.leaked) > 0 {
				t.Errorf("without TLS went %q", plain.leaked)
			}
		})
	}
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
	o := r.options(t)
	var notices []string
	o.Report = func(e events.Event) {
		if e.Event == events.Notice {
			notices = append(notices, e.Why)
		}
	}
	write(t, o.System.AuthFilePath, auth(r.host, "secret"))
	r.behave(bearer("localhost" + r.host[strings.LastIndex(r.host, ":"):]))
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "token server localhost:") {
		t.Errorf("said %q", notices)
	}
}

// challenge names a token server to each request.
func challenge(realm string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="s"`, realm))
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// TestPullForeignBody checks that no error shows content of a page that is not a registry's answer: a registry can redirect a
// request to a page that only this machine reads.
func TestPullForeignBody(t *testing.T) {
	const secret = "hunter2-internal-page"
	for _, c := range []struct {
		name   string
		status int
		body   string
		part   string
	}{
		{"manifest", 200, secret, "/manifests/"}, {"manifest, JSON", 200, `{"` + secret + `":1}`, "/manifests/"}, {"manifest, a media type", 200, `{"mediaType":"` + secret + `"}`, "/manifests/"},
		{"manifest, 404", 404, secret, "/manifests/"}, {"manifest, 403", 403, `{"` + secret + `":1}`, "/manifests/"}, {"manifest, 401", 401, secret, "/manifests/"},
		{"manifest, 500", 500, secret, "/manifests/"}, {"configuration", 200, secret, "/blobs/"}, {"configuration, 404", 404, secret, "/blobs/"},
		{"token", 200, secret, "/token"}, {"token, JSON", 200, `{"token":["` + secret + `"]}`, "/token"}, {"token, number", 200, `{"expires_in":"` + secret + `"}`, "/token"},
		{"token, time", 200, `{"token":"t","issued_at":"` + secret + `"}`, "/token"}, {"token, 401", 401, secret, "/token"}, {"token, 404", 404, secret, "/token"}, {"ping", 404, secret, "/v2/"},
	} {
		r := newRegistry(t)
		ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
		o := r.options(t)
		var said []string
		o.Report = func(e events.Event) { said = append(said, e.Why+e.Text) }
		write(t, o.System.AuthFilePath, auth(r.host, "secret"))
		r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
			if strings.Contains(req.URL.Path, c.part) && (c.part != "/v2/" || req.URL.Path == c.part) {
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
				return
			}
			bearer(r.host)(w, req, next)
		})
		_, err := Image(context.Background(), ref, o)
		if err == nil {
			t.Errorf("%s: pulled", c.name)
			continue
		}
		if all := err.Error() + OneLine(err) + strings.Join(said, "\n"); strings.Contains(all, secret[:7]) {
			t.Errorf("%s: %s", c.name, all)
		}
	}
}
