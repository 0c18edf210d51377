package pull

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"demesne/images"
	"demesne/images/events"
)

// basic requires the password with basic authentication.
func basic(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "secret" {
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(401)
		return
	}
	next.ServeHTTP(w, r)
}

// bearer requires a token for the repository, and issues one in exchange for the password.
func bearer(host string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/token" {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				w.WriteHeader(401)
				return
			}
			fmt.Fprintf(w, `{"token":"for %s","expires_in":300}`, r.URL.Query().Get("scope"))
			return
		}
		if got := r.Header.Get("Authorization"); got != "Bearer for repository:o/n:pull" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token",service="s"`, host))
			w.WriteHeader(401)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// auth returns an auth.json for one registry.
func auth(host, password string) string {
	word := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, word)
}

// TestPullAuth checks that credentials are read from the places that podman and docker use. Missing or
// wrong credentials are denied, and no other registry receives them.
func TestPullAuth(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "docker-credential-test")
	script := "#!/bin/sh\nread host\necho '{\"Username\":\"me\",\"Secret\":\"secret\"}'\n"
	if err := os.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(helper)+":"+os.Getenv("PATH"))
	for _, scheme := range []string{"basic", "bearer"} {
		for _, c := range []struct {
			name, auth string
			code       events.Code // "" if access is granted
		}{
			{"right", auth("HOST", "secret"), ""},
			{"for the repository", auth("HOST/o/n", "secret"), ""},
			{"by a helper", `{"credHelpers":{"HOST":"test"}}`, ""},
			{"wrong", auth("HOST", "guess"), events.CodeDenied},
			{"none", `{}`, events.CodeDenied},
			{"another's", auth("other.example", "secret"), events.CodeDenied},
		} {
			t.Run(scheme+" "+c.name, func(t *testing.T) {
				r := newRegistry(t)
				img := anImage(t, runtime.GOARCH, 100, 2)
				ref := r.push(t, "o/n:1", img)
				o := r.options(t)
				write(t, o.System.AuthFilePath, strings.ReplaceAll(c.auth, "HOST", r.host))
				front := basic
				if scheme == "bearer" {
					front = bearer(r.host)
				}
				r.behave(front)
				_, err := Image(context.Background(), ref, o)
				if c.code == "" {
					if err != nil {
						t.Fatal(err)
					}
					holds(t, o.Store, ref, img)
					return
				}
				if got := Classify(err); err == nil || got != c.code {
					t.Errorf("%v is %q, not %q", err, got, c.code)
				}
				holdsNothing(t, o.Store)
			})
		}
	}
}

// TestPullRedirect checks that a blob is fetched from another host without sending it the credentials.
func TestPullRedirect(t *testing.T) {
	r, elsewhere := newRegistry(t), newRegistry(t)
	img := anImage(t, runtime.GOARCH, 5000, 2)
	ref := r.push(t, "o/n:1", img)
	elsewhere.push(t, "o/n:1", img)
	o := r.options(t)
	write(t, o.System.AuthFilePath, auth(r.host, "secret"))
	other := filepath.Join(o.System.DockerPerHostCertDirPath, r.host, "other.crt")
	trust := elsewhere.trust(t)
	ca, err := os.ReadFile(filepath.Join(trust.DockerPerHostCertDirPath, elsewhere.host, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, other, string(ca))
	leaked, asked := false, atomic.Int64{}
	elsewhere.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		asked.Add(1)
		leaked = leaked || req.Header.Get("Authorization") != ""
		next.ServeHTTP(w, req)
	})
	// net/http treats another port as the same host, and another name as another host.
	away := "https://localhost" + elsewhere.host[strings.LastIndex(elsewhere.host, ":"):]
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if strings.Contains(req.URL.Path, "/blobs/") {
			http.Redirect(w, req, away+req.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		basic(w, req, next)
	})
	_, err = Image(context.Background(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	if asked.Load() == 0 {
		t.Error("nothing was asked elsewhere")
	}
	if leaked {
		t.Error("credentials went elsewhere")
	}
	holds(t, o.Store, ref, img)
}

// TestPullPrivate checks a pull with a login: only it counts, also where the store has the image or the files have another
// login. Only the registry gets it, and the image has only the name that was chosen.
func TestPullPrivate(t *testing.T) {
	for _, c := range []struct {
		scheme string
		front  func(host string) func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		{"basic", func(string) func(http.ResponseWriter, *http.Request, http.Handler) { return basic }}, {"bearer", bearer},
	} {
		t.Run(c.scheme, func(t *testing.T) {
			r, mirror := newRegistry(t), newRegistry(t)
			img := anImage(t, runtime.GOARCH, 1000, 2)
			ref := r.push(t, "o/n:1", img)
			r.behave(c.front(r.host))
			var leaked atomic.Bool
			mirror.behave(func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
				if user, password, _ := req.BasicAuth(); user+password != "" {
					leaked.Store(true)
				}
				w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
				w.WriteHeader(401)
			})
			o, as := r.options(t), parseRef(t, "local/e2b-a:b-base")
			write(t, o.System.SystemRegistriesConfPath, fmt.Sprintf("[[registry]]\nprefix = %q\nlocation = %q\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n", r.host+"/o", r.host+"/o", mirror.host+"/o"))
			write(t, o.System.AuthFilePath, auth(r.host, "of another"))
			if _, err := Private(t.Context(), ref, images.Login{User: "me", Password: "secret"}, as, o); err != nil {
				t.Fatal(err)
			}
			holds(t, o.Store, as, img)
			if _, err := o.Store.Lookup(ref); !errors.Is(err, images.ErrNotFound) {
				t.Errorf("the registry's name is in the store: %v", err)
			}
			write(t, o.System.AuthFilePath, auth(r.host, "secret"))
			_, err := Private(t.Context(), ref, images.Login{User: "me", Password: "guess"}, as, o)
			if Classify(err) != events.CodeDenied || strings.Contains(err.Error(), "guess") {
				t.Errorf("a wrong password: %v", err)
			}
			for _, name := range []string{"o/n:1", "redis", "docker://o/n:1", "python"} {
				if _, err := Private(t.Context(), parseRef(t, name), images.Login{User: "me", Password: "secret"}, as, o); Classify(err) != events.CodeInvalid {
					t.Errorf("%s: %v", name, err)
				}
			}
			if leaked.Load() {
				t.Error("a mirror got the login")
			}
		})
	}
}
