package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/events"
)

// status answers every request for a path with a status.
func status(part string, code int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, part) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// redirect sends every request for a manifest to an address, or to itself.
func redirect(to string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Location", cmp.Or(to, r.URL.Path))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// TestPullBusy checks that a registry that asks for a long wait is reported at once, with the time.
func TestPullBusy(t *testing.T) {
	for _, part := range []string{"/manifests/", "/blobs/"} {
		r := newRegistry(t)
		ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
		r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
			if strings.Contains(req.URL.Path, part) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, req)
		})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := Image(ctx, ref, r.options(t))
		cancel()
		if Classify(err) != events.CodeBusy || !strings.Contains(fmt.Sprint(err), "the registry asks to wait: again in 3600 s") {
			t.Errorf("%s: %v is %q", part, err, Classify(err))
		}
	}
}

// TestPauseOf checks the forms of a Retry-After header.
func TestPauseOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"60": time.Minute, now.Add(time.Hour).Format(http.TimeFormat): time.Hour, now.Add(-time.Hour).Format(http.TimeFormat): -time.Hour,
		"": 0, "soon": 0, "99999999999999999999": 0, "-5": -5 * time.Second,
	} {
		if got := PauseOf(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestPullPlainHTTP checks that a registry without TLS is reported at once, with its address.
func TestPullPlainHTTP(t *testing.T) {
	r := newPlainRegistry(t)
	o := newRegistry(t).options(t)
	o.Backoff, o.Report = time.Hour, func(e events.Event) { t.Errorf("%+v", e) }
	_, err := Image(context.Background(), parseRef(t, r.host+"/o/n:1"), o)
	if !PlainHTTP(err) || Classify(err) != events.CodeUnreachable || Host(err) != r.host {
		t.Errorf("%v is %q, host %q", err, Classify(err), Host(err))
	}
}

// TestPullFails checks the code of each kind of failure. A failure is retried only if that helps, and
// leaves nothing in the store.
func TestPullFails(t *testing.T) {
	word := func(code string) string { return `{"errors":[{"code":"` + code + `","message":"no\nno"}]}` }
	for _, c := range []struct {
		name  string
		front func(http.ResponseWriter, *http.Request, http.Handler)
		code  events.Code
		tries int // requests for the failing part
		part  string
	}{
		{"401", status("/manifests/", 401, ""), events.CodeDenied, 1, "/manifests/"},
		{"401 with a word", status("/manifests/", 401, word("UNAUTHORIZED")), events.CodeDenied, 1, "/manifests/"},
		{"403", status("/manifests/", 403, "forbidden"), events.CodeDenied, 1, "/manifests/"},
		{"403 with a word", status("/manifests/", 403, word("DENIED")), events.CodeDenied, 1, "/manifests/"},
		{"404", status("/manifests/", 404, "what?"), events.CodeNotFound, 1, "/manifests/"},
		{"404 with a word", status("/manifests/", 404, word("MANIFEST_UNKNOWN")), events.CodeNotFound, 1, "/manifests/"},
		{"404 of a repository", status("/manifests/", 404, word("NAME_UNKNOWN")), events.CodeNotFound, 1, "/manifests/"},
		{"404 of a blob", status("/blobs/", 404, word("BLOB_UNKNOWN")), events.CodeNotFound, 1, "/blobs/"},
		{"429", status("/manifests/", 429, ""), events.CodeBusy, 5, "/manifests/"},
		{"429 with a word", status("/manifests/", 429, word("TOOMANYREQUESTS")), events.CodeBusy, 5, "/manifests/"},
		{"500", status("/manifests/", 500, "oops"), events.CodeUnreachable, 5, "/manifests/"},
		{"503 of a blob", status("/blobs/", 503, "later"), events.CodeUnreachable, 5, "/blobs/"},
		{"503 of the first ping", status("/v2/", 503, "later"), events.CodeUnreachable, 5, "/v2/"},
		{"a web page", status("/manifests/", 200, "<html>"), events.CodeNoImage, 1, "/manifests/"},
		{"a bad scheme", redirect("ftp://registry.test/x"), events.CodeUnreachable, 1, "/manifests/"},
		{"redirects in a loop", redirect(""), events.CodeUnreachable, 10, "/manifests/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
			o := r.options(t)
			r.behave(c.front)
			_, err := Image(context.Background(), ref, o)
			if got := Classify(err); err == nil || got != c.code {
				t.Errorf("%v is %q, not %q", err, got, c.code)
			}
			if n, _ := r.count("GET", c.part); n != c.tries {
				t.Errorf("asked %d times, not %d", n, c.tries)
			}
			if err != nil && strings.ContainsAny(OneLine(err), "\n\r") {
				t.Errorf("%q is not one line", OneLine(err))
			}
			holdsNothing(t, o.Store)
		})
	}
}

// holdsNothing fails the test unless the store has no image and no damaged blob.
func holdsNothing(t *testing.T, s *images.Store) {
	t.Helper()
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("the store has %d images: %v", len(all), err)
	}
	if bad, err := s.Verify(context.Background()); err != nil || len(bad) != 0 {
		t.Errorf("the store is damaged: %v, %v", bad, err)
	}
}

// TestPullUnreachable checks that an unreachable registry, or one with an untrusted certificate, fails
// at once without a retry.
func TestPullUnreachable(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100, 1))
	gone := newRegistry(t)
	gone.Close()
	strange := r.trust(t)
	strange.DockerPerHostCertDirPath = t.TempDir()
	for _, c := range []struct {
		name string
		ref  string
		o    Options
	}{
		{"no listener", gone.host + "/o/n:1", r.options(t)},
		{"a certificate of a stranger", ref.Given, Options{Store: openStore(t, t.TempDir()), System: strange}},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := 0
			c.o.Backoff, c.o.Report = time.Hour, func(events.Event) { said++ }
			_, err := Image(context.Background(), parseRef(t, c.ref), c.o)
			if got := Classify(err); got != events.CodeUnreachable {
				t.Errorf("%v is %q", err, got)
			}
			if said != 0 {
				t.Errorf("it was tried again")
			}
			holdsNothing(t, c.o.Store)
		})
	}
}

// TestPullIdle checks that an attempt ends if a registry accepts a request and then falls silent,
// before the answer or within a layer.
func TestPullIdle(t *testing.T) {
	for _, part := range []string{"/v2/", "/manifests/", "/blobs/"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 100_000, 1))
			o := r.options(t)
			o.Idle = 50 * time.Millisecond
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
				if !strings.Contains(req.URL.Path, part) {
					next.ServeHTTP(w, req)
					return
				}
				if part == "/blobs/" {
					w.Write(make([]byte, 10))
					w.(*counter).ResponseWriter.(http.Flusher).Flush()
				}
				select {
				case <-end:
				case <-req.Context().Done():
				}
				panic(http.ErrAbortHandler) // to return would be to answer, with an empty body
			})
			_, err := Image(context.Background(), ref, o)
			if got := Classify(err); got != events.CodeUnreachable || !errors.Is(err, errIdle) {
				t.Errorf("%v is %q", err, got)
			}
		})
	}
}

// TestPullBadContent checks that content with a wrong digest or size becomes neither an image nor a
// blob.
func TestPullBadContent(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
	}{
		{"does not match its digest", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		{"longer", func(b []byte) []byte { return append(b, 'x') }},
		{"endless", func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRegistry(t)
			ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 5000, 1))
			o := r.options(t)
			r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
				if !strings.Contains(req.URL.Path, "/blobs/") {
					next.ServeHTTP(w, req)
					return
				}
				b := record(next, req)
				if len(b) < 2000 { // the configuration
					w.Write(b)
					return
				}
				w.Write(c.change(b))
			})
			_, err := Image(context.Background(), ref, o)
			if got := Classify(err); got != events.CodeCorrupt {
				t.Errorf("%v is %q", err, got)
			}
			holdsNothing(t, o.Store)
		})
	}
}

// TestPullFlippedBit checks that content that was damaged on the way is asked for once more.
func TestPullFlippedBit(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 5000, 1)
	ref := r.push(t, "o/n:1", img)
	o := r.options(t)
	var flipped atomic.Bool
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		b := record(next, req)
		if strings.Contains(req.URL.Path, "/blobs/") && len(b) > 2000 && !flipped.Swap(true) {
			b[len(b)/2] ^= 1
			w.Write(b)
			return
		}
		next.ServeHTTP(w, req)
	})
	if _, err := Image(context.Background(), ref, o); err != nil || !flipped.Load() {
		t.Fatalf("%v, flipped: %t", err, flipped.Load())
	}
	holds(t, o.Store, ref, img)
}

// TestPullManifestSwapped checks that a manifest must match the requested digest.
func TestPullManifestSwapped(t *testing.T) {
	r := newRegistry(t)
	good, evil := anImage(t, runtime.GOARCH, 100, 1), anImage(t, runtime.GOARCH, 100, 1)
	r.push(t, "o/n:1", good)
	r.push(t, "o/n:2", evil)
	d, err := good.Digest()
	if err != nil {
		t.Fatal(err)
	}
	o := r.options(t)
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if strings.Contains(req.URL.Path, "/manifests/sha256:") {
			req.URL.Path = "/v2/o/n/manifests/2"
		}
		next.ServeHTTP(w, req)
	})
	_, err = Image(context.Background(), parseRef(t, r.host+"/o/n@"+d.String()), o)
	if err == nil {
		t.Error("believed")
	}
	holdsNothing(t, o.Store)
}

// TestPullCanceled cancels a pull at different times. The store must be intact, and the next pull must
// succeed.
func TestPullCanceled(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 300_000, 3)
	ref := r.push(t, "o/n:1", img)
	o := r.options(t)
	for n := range int64(9) {
		ctx, cancel := context.WithCancel(context.Background())
		var seen atomic.Int64
		r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
			if seen.Add(1) > n {
				cancel()
			}
			next.ServeHTTP(w, req)
		})
		_, err := Image(ctx, ref, o)
		cancel()
		if err != nil && Classify(err) != events.CodeCanceled {
			t.Errorf("after %d requests: %v is %q", n, err, Classify(err))
		}
		if bad, err := o.Store.Verify(context.Background()); err != nil || len(bad) != 0 {
			t.Errorf("after %d requests the store is damaged: %v, %v", n, bad, err)
		}
	}
	r.behave(nil)
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	holds(t, o.Store, ref, img)
	if left, err := filepath.Glob(filepath.Join(o.Store.Dir(), "partial", "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
