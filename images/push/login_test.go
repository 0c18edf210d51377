package push

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"

	"demesne/images/events"
	"demesne/images/pull"
)

// basic wants a password with each request.
func basic(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "secret" {
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(401)
		return
	}
	next.ServeHTTP(w, r)
}

func report(events.Event) {}

// TestLogin checks that only a password that the registry takes is stored, that pushes use it, and that logout removes it.
func TestLogin(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 1000)
	r.behave(basic)
	ctx := context.Background()
	if _, err := Login(ctx, s.sys, r.host, "me", "guess", report); pull.Classify(err) != events.CodeDenied {
		t.Errorf("a wrong password: %v", err)
	}
	if text, _ := os.ReadFile(s.sys.AuthFilePath); string(text) != "{}" {
		t.Errorf("stored: %s", text)
	}
	where, err := Login(ctx, s.sys, r.host, "me", "secret", report)
	if err != nil || where != s.sys.AuthFilePath {
		t.Fatalf("%q %v", where, err)
	}
	if st, err := os.Stat(where); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	s.pushed(img, r.host+"/o/n:1")
	s.pulled(r.host + "/o/n:1")
	if err := Logout(s.sys, r.host); err != nil {
		t.Fatal(err)
	}
	if _, err := s.push(img, r.host+"/o/n:2"); pull.Classify(err) != events.CodeDenied {
		t.Errorf("after logout: %v", err)
	}
	if err := Logout(s.sys, r.host); !errors.Is(err, ErrNotLoggedIn) {
		t.Errorf("again: %v", err)
	}
	if _, err := Login(ctx, s.sys, r.host+"/o", "me", "secret", report); err != nil { // for a part of the registry
		t.Fatal(err)
	}
	s.pushed(img, r.host+"/o/n:3")
	if _, err := s.push(img, r.host+"/p/n:1"); pull.Classify(err) != events.CodeDenied {
		t.Errorf("in another part: %v", err)
	}
	if err := Logout(s.sys, ""); err != nil {
		t.Fatal(err)
	}
	if all, err := config.GetAllCredentials(s.sys); err != nil || len(all) > 0 {
		t.Errorf("%v %v", all, err)
	}
}

// TestLoginRefused checks the names of registries, and registries that do not answer.
func TestLoginRefused(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	for name, code := range map[string]events.Code{
		"": events.CodeInvalid, "registry": events.CodeInvalid, "http://x.test": events.CodeInvalid, "x.test/UPPER": events.CodeInvalid,
		"x.test/n:tag": events.CodeInvalid, "x.test:port": events.CodeInvalid, "-x.test": events.CodeInvalid, "x.test/" + strings.Repeat("a", 300): events.CodeInvalid,
		"registry.invalid": events.CodeUnreachable, "oci:x.test": events.CodeInvalid, "x.test/../etc": events.CodeInvalid,
	} {
		if _, err := Login(context.Background(), s.sys, name, "me", "secret", report); pull.Classify(err) != code {
			t.Errorf("%q: %v", name, err)
		}
	}
	r.behave(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(500) })
	if _, err := Login(context.Background(), s.sys, r.host, "me", "secret", report); pull.Classify(err) != events.CodeUnreachable {
		t.Error(err)
	}
	if text, _ := os.ReadFile(s.sys.AuthFilePath); string(text) != "{}" {
		t.Errorf("stored: %s", text)
	}
}

// TestPushRealm checks that neither a challenge nor a redirect makes a push or a login send credentials without TLS.
func TestPushRealm(t *testing.T) {
	leaked := make(chan string, 100)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked <- r.Method + " " + r.Header.Get("Authorization") + r.URL.String()
	}))
	defer plain.Close()
	identity := `{"auths":{"HOST":{"auth":"bWU6c2VjcmV0","identitytoken":"i"}}}`
	for _, auth := range []string{`{"auths":{"HOST":{"auth":"bWU6c2VjcmV0"}}}`, identity} {
		for _, elsewhere := range []bool{false, true} {
			r, s := newRegistry(t), newShop(t)
			img := s.image("local/app", 1000)
			host := newTLS(t, r)
			s.sys.DockerInsecureSkipTLSVerify, s.sys.DockerPerHostCertDirPath = types.OptionalBoolFalse, t.TempDir()
			os.Mkdir(filepath.Join(s.sys.DockerPerHostCertDirPath, host), 0o755)
			os.WriteFile(filepath.Join(s.sys.DockerPerHostCertDirPath, host, "ca.crt"), pemOf(t, host), 0o600)
			os.WriteFile(s.sys.AuthFilePath, []byte(strings.ReplaceAll(auth, "HOST", host)), 0o600)
			realm := plain.URL + "/token"
			if elsewhere { // the token server redirects
				realm = "https://" + host + "/token"
			}
			r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
				if req.URL.Path == "/token" {
					http.Redirect(w, req, plain.URL+"/token", http.StatusTemporaryRedirect)
					return
				}
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="s"`)
				w.WriteHeader(http.StatusUnauthorized)
			})
			if _, err := s.push(img, host+"/o/n:1"); pull.Classify(err) != events.CodeDenied {
				t.Errorf("pushed to %s: %v", realm, err)
			}
			if _, err := Login(context.Background(), s.sys, host, "me", "secret", report); pull.Classify(err) != events.CodeDenied {
				t.Errorf("logged in to %s: %v", realm, err)
			}
		}
	}
	if len(leaked) > 0 {
		t.Errorf("without TLS went %q", <-leaked)
	}
}
