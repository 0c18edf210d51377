package pull

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/events"
)

// record passes a request to the registry and returns the response.
func record(next http.Handler, r *http.Request) []byte {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	return answer.Body.Bytes()
}

// cut closes the connection after the given number of bytes of each blob.
func cut(after func() int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		n := after()
		if !strings.Contains(r.URL.Path, "/blobs/") || n < 0 {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&shortWriter{w.(*counter), n}, r)
	}
}

// shortWriter closes the connection after some bytes.
type shortWriter struct {
	*counter
	left int
}

func (w *shortWriter) Write(b []byte) (int, error) {
	if w.left < len(b) {
		w.counter.Write(b[:w.left])
		w.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(b)
	return w.counter.Write(b)
}

// TestResume checks that a connection that is cut at random positions resumes without downloading
// stored bytes again.
func TestResume(t *testing.T) {
	r := newRegistry(t)
	const size = 3 << 20
	img := anImage(t, runtime.GOARCH, size, 1)
	ref := r.push(t, "o/n:1", img)
	o := r.options(t)
	var cuts atomic.Int64
	r.behave(cut(func() int {
		if cuts.Add(1) > 8 {
			return -1
		}
		return 1<<20 + rand.IntN(1<<18)
	}))
	var retries atomic.Int64
	o.Report = func(e events.Event) {
		if e.Event == events.Retry {
			retries.Add(1)
		}
	}
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	holds(t, o.Store, ref, img)
	got, err := o.Store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	// Bytes that were in the kernel's buffers when the connection was cut are sent again.
	if _, sent := r.count("GET", got.Layers[0].Digest.Encoded()); sent > got.Layers[0].Size+8*(1<<18) {
		t.Errorf("%d bytes were sent for %d", sent, got.Layers[0].Size)
	}
	if r.ranges() == 0 {
		t.Error("nothing was resumed")
	}
}

// ranges counts the requests for part of a blob.
func (r *aRegistry) ranges() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.served {
		if s.rang != "" {
			n++
		}
	}
	return n
}

// TestResumeOdd checks that a pull succeeds with registries that handle ranges in unusual ways.
func TestResumeOdd(t *testing.T) {
	const half = 500_000
	for _, c := range []struct {
		name string
		odd  func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		{"ignored", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Del("Range")
			next.ServeHTTP(w, r)
		}},
		{"400", func(w http.ResponseWriter, r *http.Request, next http.Handler) { w.WriteHeader(400) }},
		{"416", func(w http.ResponseWriter, r *http.Request, next http.Handler) { w.WriteHeader(416) }},
		{"another part", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Set("Range", "bytes=0-"+strconv.Itoa(half))
			next.ServeHTTP(w, r)
		}},
		{"nothing", func(w http.ResponseWriter, r *http.Request, next http.Handler) { w.WriteHeader(206) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			img := anImage(t, runtime.GOARCH, 1_000_000, 1)
			ref := r.push(t, "o/n:1", img)
			o := r.options(t)
			r.behave(cut(func() int { return half }))
			ctx, cancel := context.WithCancel(context.Background())
			o.Report = func(e events.Event) {
				if e.Event == events.Retry {
					cancel()
				}
			}
			if _, err := Image(ctx, ref, o); err == nil {
				t.Fatal("it was not cut")
			}
			o.Report = nil
			var asked atomic.Int64
			r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
				if req.Header.Get("Range") == "" {
					next.ServeHTTP(w, req)
					return
				}
				asked.Add(1)
				c.odd(w, req, next)
			})
			if _, err := Image(context.Background(), ref, o); err != nil {
				t.Fatal(err)
			}
			if asked.Load() == 0 {
				t.Error("nothing was resumed")
			}
			holds(t, o.Store, ref, img)
		})
	}
}

// TestResumeBadRange checks that a download that was cut starts from the beginning, within the same pull, if the
// registry refuses the range or answers with another one.
func TestResumeBadRange(t *testing.T) {
	const size, most = 3 << 20, 2 << 20
	for name, answer := range map[string]func(w http.ResponseWriter, b []byte){
		"416": func(w http.ResponseWriter, _ []byte) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) },
		"from the start": func(w http.ResponseWriter, b []byte) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(b)-1, len(b)))
			w.WriteHeader(http.StatusPartialContent)
			w.Write(b)
		},
		"one byte off": func(w http.ResponseWriter, b []byte) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", most, len(b)-1, len(b)))
			w.WriteHeader(http.StatusPartialContent)
			w.Write(append(b[most+1:], 'x'))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			img := anImage(t, runtime.GOARCH, size, 1)
			ref := r.push(t, "o/n:1", img)
			o := r.options(t)
			var ranges, cuts atomic.Int64
			r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
				whole := req.Clone(req.Context())
				whole.Header.Del("Range")
				b := record(next, whole)
				switch {
				case !strings.Contains(req.URL.Path, "/blobs/") || len(b) < most:
					next.ServeHTTP(w, req)
				case req.Header.Get("Range") != "":
					ranges.Add(1)
					answer(w, b)
				case cuts.Add(1) == 1:
					next.ServeHTTP(&shortWriter{w.(*counter), most}, req)
				default:
					next.ServeHTTP(w, req)
				}
			})
			if _, err := Image(context.Background(), ref, o); err != nil || ranges.Load() == 0 {
				t.Fatalf("%v, after %d ranges", err, ranges.Load())
			}
			holds(t, o.Store, ref, img)
		})
	}
}

// TestResumeKilled checks that a pull resumes where a killed pull stopped.
func TestResumeKilled(t *testing.T) {
	const size, most = 4 << 20, 2 << 20
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, size, 1)
	ref := r.push(t, "o/n:1", img)
	o := r.options(t)
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if b := record(next, req); strings.Contains(req.URL.Path, "/blobs/") && len(b) > most {
			w.Write(b[:most])
			w.(*counter).ResponseWriter.(http.Flusher).Flush()
			<-hung
			return
		}
		next.ServeHTTP(w, req)
	})
	cmd := child{Ref: ref.Given, Store: o.Store.Dir(), Certs: o.System.DockerPerHostCertDirPath}.command(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return partial(o.Store) == most })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	r.behave(nil)
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	holds(t, o.Store, ref, img)
	got, err := o.Store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, sent := r.count("GET", got.Layers[0].Digest.Encoded()); sent != got.Layers[0].Size-most {
		t.Errorf("%d bytes were sent, with %d of %d there", sent, most, got.Layers[0].Size)
	}
}

// partial returns the size of the unfinished download.
func partial(s *images.Store) (most int64) {
	files, _ := filepath.Glob(filepath.Join(s.Dir(), "partial", "*"))
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			most = max(most, st.Size())
		}
	}
	return most
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !what(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}
