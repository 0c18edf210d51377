package push

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/images/pull"
)

// resumable stands in front of a registry that keeps what it got of a cut upload, as the distribution specification says.
// Requests with part of a blob are cut after some bytes, while cuts lasts.
type resumable struct {
	mu      sync.Mutex
	parts   map[string][]byte
	cuts    int
	after   int64
	resumed int
	begun   int
	got     int64
	forgets bool // answers 404 to the question where to continue
}

func (u *resumable) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !strings.Contains(r.URL.Path, "/blobs/uploads/") {
		next.ServeHTTP(w, r)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	id := r.URL.Path
	switch r.Method {
	case http.MethodPost:
		u.begun++
		w.Header().Set("Location", fmt.Sprintf("%s%d", r.URL.Path, u.begun))
		w.WriteHeader(http.StatusAccepted)
		u.parts[fmt.Sprintf("%s%d", r.URL.Path, u.begun)] = nil
	case http.MethodGet:
		if u.forgets {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Range", fmt.Sprintf("0-%d", max(0, len(u.parts[id])-1)))
		w.Header().Set("Location", id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPatch:
		u.patch(w, r, id)
	case http.MethodPut:
		whole := r.Clone(r.Context())
		whole.Body, whole.ContentLength = io.NopCloser(strings.NewReader(string(u.parts[id]))), int64(len(u.parts[id]))
		next.ServeHTTP(w, whole)
	}
}

func (u *resumable) patch(w http.ResponseWriter, r *http.Request, id string) {
	if s := r.Header.Get("Content-Range"); s != "" {
		u.resumed++
		if !strings.HasPrefix(s, fmt.Sprintf("%d-", len(u.parts[id]))) || r.ContentLength <= 0 {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
	} else if len(u.parts[id]) > 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	body := io.Reader(r.Body)
	if u.cuts > 0 {
		body = io.LimitReader(body, u.after)
	}
	b, _ := io.ReadAll(body)
	u.parts[id] = append(u.parts[id], b...)
	u.got += int64(len(b))
	if u.cuts > 0 && int64(len(b)) == u.after {
		u.cuts--
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Location", id)
	w.WriteHeader(http.StatusAccepted)
}

// TestPushResumed checks that a cut upload continues where the registry says, and begins again if the registry forgot it.
func TestPushResumed(t *testing.T) {
	for _, format := range []Format{None, Gzip} {
		for _, forgets := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s forgets=%v", format, forgets), func(t *testing.T) {
				r, s := newRegistry(t), newShop(t)
				img := s.image("local/app", 20<<20)
				u := &resumable{parts: map[string][]byte{}, cuts: 2, after: 4 << 20, forgets: forgets}
				r.behave(u.serve)
				d := s.pushed(img, r.host+"/o/n:1", func(o *Options) { o.Format = format })
				r.behave(nil)
				got, store := s.pulled(r.host + "/o/n:1")
				if got.Digest != d || store.Whole(got) != nil {
					t.Errorf("pulled %s, not %s", got.Digest, d)
				}
				lost := u.got - got.Layers[0].Size
				if (u.resumed == 0) != forgets || !forgets && lost > 1<<20 {
					t.Errorf("resumed %d times, %d bytes too many", u.resumed, lost)
				}
				if s.states()["retry"] != 2 {
					t.Error("not retried twice")
				}
			})
		}
	}
}

// TestPushRefused checks how failures are classified, that definite ones are not retried, and that no failure changes a tag.
func TestPushRefused(t *testing.T) {
	status := func(code int, method string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == method && strings.Contains(r.URL.Path, "/o/n/") {
				w.WriteHeader(code)
				fmt.Fprint(w, `{"errors":[{"code":"DENIED","message":"said\u001b[31m so"}]}`)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
	for _, c := range []struct {
		name  string
		front func(http.ResponseWriter, *http.Request, http.Handler)
		code  events.Code
		tries int // requests of the failing kind
		part  string
	}{
		{"401 to all", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(401)
		}, events.CodeDenied, 1, "HEAD"},
		{"403 to uploads", status(403, "POST"), events.CodeDenied, 1, "POST"},
		{"404 to uploads", status(404, "POST"), events.CodeNotFound, 1, "POST"},
		{"500 to uploads", status(500, "POST"), events.CodeUnreachable, tries, "POST"},
		{"200 to all", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(200) }, "", 1, "POST"},
		{"no registry", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(404) }, events.CodeNoImage, 0, "POST"},
		{"403 to the manifest", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.WriteHeader(403)
				return
			}
			next.ServeHTTP(w, r)
		}, events.CodeDenied, 1, "PUT /v2/o/n/manifests"},
		{"another manifest", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
				w.WriteHeader(201)
				return
			}
			next.ServeHTTP(w, r)
		}, events.CodeCorrupt, 1, "PUT /v2/o/n/manifests"},
		{"long pause", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == "POST" {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(429)
				return
			}
			next.ServeHTTP(w, r)
		}, events.CodeBusy, 1, "POST"},
		{"always cut", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == "PATCH" {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		}, events.CodeUnreachable, tries, "PATCH"},
		{"an upload elsewhere", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == "POST" {
				w.Header().Set("Location", "file:///etc/passwd")
				w.WriteHeader(202)
				return
			}
			next.ServeHTTP(w, r)
		}, events.CodeUnsupported, 1, "POST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, s := newRegistry(t), newShop(t)
			r.behave(c.front)
			_, err := s.push(s.image("local/app", 1000), r.host+"/o/n:1", func(o *Options) { o.Jobs = 1 })
			if err == nil || c.code != "" && pull.Classify(err) != c.code {
				t.Fatalf("%v is %q, not %q", err, pull.Classify(err), c.code)
			}
			if n := r.count(c.part); n != c.tries {
				t.Errorf("%d requests, not %d: %q", n, c.tries, r.served)
			}
		})
	}
}

// TestPushSilent checks that a registry that stops reading or answering is given up.
func TestPushSilent(t *testing.T) {
	for _, method := range []string{"POST", "PATCH", "PUT"} {
		r, s := newRegistry(t), newShop(t)
		hung := make(chan struct{})
		r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
			if req.Method == method {
				<-hung
			}
			next.ServeHTTP(w, req)
		})
		_, err := s.push(s.image("local/app", 8<<20), r.host+"/o/n:1", func(o *Options) { o.Idle = 50 * time.Millisecond })
		close(hung)
		if pull.Classify(err) != events.CodeUnreachable {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestPushCancelled checks that a push ends with its context, and tells the registry.
func TestPushCancelled(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 1000)
	ctx, cancel := context.WithCancel(context.Background())
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if req.Method == "PATCH" {
			_, _ = io.Copy(io.Discard, req.Body)
			cancel()
			<-req.Context().Done()
			return
		}
		next.ServeHTTP(w, req)
	})
	_, err := Image(ctx, img, parse(t, r.host+"/o/n:1"), s.options())
	if !errors.Is(err, context.Canceled) || r.count("DELETE") == 0 || r.count("manifests") > 0 {
		t.Errorf("%v: %q", err, r.served)
	}
}

// TestPushPlainHTTP checks that a registry without TLS gets nothing unless the user allows it, also on this machine.
func TestPushPlainHTTP(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 1000)
	for _, c := range []struct {
		flag types.OptionalBool
		conf string
		ok   bool
	}{
		{types.OptionalBoolUndefined, "", false},
		{types.OptionalBoolFalse, "[[registry]]\nlocation=%q\ninsecure=true\n", false},
		{types.OptionalBoolUndefined, "[[registry]]\nlocation=%q\ninsecure=true\n", true},
		{types.OptionalBoolTrue, "", true},
	} {
		s.sys.DockerInsecureSkipTLSVerify = c.flag
		conf := c.conf
		if conf != "" {
			conf = fmt.Sprintf(conf, r.host)
		}
		s.sys.SystemRegistriesConfPath = filepath.Join(t.TempDir(), "registries.conf")
		if err := os.WriteFile(s.sys.SystemRegistriesConfPath, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		r.behave(nil)
		_, err := s.push(img, r.host+"/o/n:1")
		if (err == nil) != c.ok || !c.ok && !pull.PlainHTTP(err) {
			t.Errorf("%v %q: %v", c.flag, c.conf, err)
		}
	}
}

// TestPushUnreachable checks that a name that leads nowhere fails at once.
func TestPushUnreachable(t *testing.T) {
	s := newShop(t)
	img := s.image("local/app", 1000)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	for _, host := range []string{"registry.invalid", closed} {
		began := time.Now()
		_, err := s.push(img, host+"/o/n:1", func(o *Options) { o.Backoff = time.Hour })
		if pull.Classify(err) != events.CodeUnreachable || time.Since(began) > time.Minute {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// guarded wants a token for the repository, and gives it for the password. Tokens for reading another repository are
// refused.
func guarded(host string, issued *atomic.Int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/token" {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				w.WriteHeader(401)
				return
			}
			issued.Add(1)
			fmt.Fprintf(w, `{"access_token":"%d for %s","expires_in":300}`, issued.Load(), strings.Join(r.URL.Query()["scope"], " "))
			return
		}
		if got := r.Header.Get("Authorization"); got != fmt.Sprintf("Bearer %d for repository:o/n:pull,push", issued.Load()) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="a, b"`, host))
			w.WriteHeader(401)
			return
		}
		next.ServeHTTP(w, r)
	}
}

func credentials(host, password string) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
}

// TestPushAuth checks passwords and tokens. A token that expires meanwhile is replaced.
func TestPushAuth(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 2<<20, 1<<20)
	var issued atomic.Int64
	r.behave(guarded(r.host, &issued))
	for password, code := range map[string]events.Code{"guess": events.CodeDenied, "": events.CodeDenied} {
		text := credentials(r.host, password)
		if password == "" {
			text = "{}"
		}
		os.WriteFile(s.sys.AuthFilePath, []byte(text), 0o600)
		if _, err := s.push(img, r.host+"/o/n:1"); pull.Classify(err) != code {
			t.Errorf("%q: %v", password, err)
		}
	}
	os.WriteFile(s.sys.AuthFilePath, []byte(credentials(r.host, "secret")), 0o600)
	s.pushed(img, r.host+"/o/n:1")
	tokens, expired := issued.Load(), atomic.Bool{}
	inner := guarded(r.host, &issued)
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if req.Method == http.MethodPatch && expired.CompareAndSwap(false, true) {
			issued.Add(1) // no token that was issued is valid any more
		}
		inner(w, req, next)
	})
	s.pushed(img, r.host+"/o/n:2", func(o *Options) { o.Format = Zstd })
	if issued.Load() < tokens+2 {
		t.Error("no token was replaced")
	}
}

// TestPushElsewhere checks that a registry may take uploads at another host, and that this host gets no credentials.
func TestPushElsewhere(t *testing.T) {
	r, storage, s := newRegistry(t), newRegistry(t), newShop(t)
	os.WriteFile(s.sys.AuthFilePath, []byte(credentials(r.host, "secret")), 0o600)
	var leaked atomic.Bool
	storage.behave(func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		leaked.Store(leaked.Load() || req.Header.Get("Authorization") != "")
		to := *req.URL
		to.Scheme, to.Host = "http", r.host
		inner, err := http.NewRequest(req.Method, to.String(), req.Body)
		if err != nil {
			t.Error(err)
			return
		}
		inner.SetBasicAuth("me", "secret")
		resp, err := http.DefaultClient.Do(inner)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Location", req.URL.String())
		w.WriteHeader(resp.StatusCode)
	})
	away := "http://localhost" + storage.host[strings.LastIndex(storage.host, ":"):]
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		basic(w, req, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method != http.MethodPost {
				next.ServeHTTP(w, req)
				return
			}
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, req)
			w.Header().Set("Location", away+answer.Header().Get("Location"))
			w.WriteHeader(answer.Code)
		}))
	})
	s.pushed(s.image("local/app", 1000), r.host+"/o/n:1")
	if leaked.Load() || storage.count("PATCH") == 0 {
		t.Errorf("credentials leaked: %v; asked there: %q", leaked.Load(), storage.served)
	}
}

// TestPushCertificate checks that a registry's certificate is trusted only if certs.d has it, or the user needs none.
func TestPushCertificate(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 1000)
	front := newTLS(t, r)
	s.sys.DockerInsecureSkipTLSVerify = types.OptionalBoolUndefined
	var untrusted *tls.CertificateVerificationError
	if _, err := s.push(img, front+"/o/n:1"); !errors.As(err, &untrusted) {
		t.Errorf("untrusted: %v", err)
	}
	s.sys.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	s.pushed(img, front+"/o/n:1")
	s.sys.DockerInsecureSkipTLSVerify = types.OptionalBoolFalse
	dir := filepath.Join(s.sys.DockerPerHostCertDirPath, front)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "ca.crt"), pemOf(t, front), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.pushed(img, front+"/o/n:2")
}

// TestPushFull checks that a store on a full disk does not keep an image from being pushed: a push writes only a note.
func TestPushFull(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 1000)
	if err := os.WriteFile(filepath.Join(s.store.Dir(), "pushed"), nil, 0o600); err != nil { // no note can be written
		t.Fatal(err)
	}
	s.pushed(img, r.host+"/o/n:1")
	if code := pull.Classify(fmt.Errorf("x: %w", syscall.ENOSPC)); code != events.CodeNoSpace {
		t.Error(code)
	}
}

// TestPushTwice checks that pushes of the same image at once agree, and record both repositories.
func TestPushTwice(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 5<<20, 1<<20)
	var wg sync.WaitGroup
	digests := make([]oci.Digest, 4)
	for i := range digests {
		wg.Go(func() { digests[i], _ = s.push(img, fmt.Sprintf("%s/o/n%d:1", r.host, i/2)) })
	}
	wg.Wait()
	for _, d := range digests {
		if d == "" || d != digests[0] {
			t.Errorf("%q", digests)
		}
	}
	copies := images.Copies{Store: s.store}.Of(img.Layers[0].Digest)
	if len(copies) != 1 || len(copies[0].Repositories) != 2 {
		t.Errorf("%+v", copies)
	}
}
