package operate

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"demesne/internal/text"
)

// Handler counts, traces and logs the requests of h.
func (op *Operator) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		watched := &watcher{ResponseWriter: w}
		r, end := op.traces.begin(r)
		defer func() {
			route := route(r)
			status := max(watched.status, http.StatusOK)
			took := time.Since(began)
			op.metrics.requests.WithLabelValues(method(r.Method), route, strconv.Itoa(status)).Inc()
			op.metrics.requestTook.WithLabelValues(route).Observe(took.Seconds())
			end(route, status)
			op.refused(r, status)
			if op.opts.Requests { // without the query: it may have a signature
				op.opts.Log.Printf("%s %s %d %s %s", method(r.Method), text.SafeLine(r.URL.Path), status, took.Round(time.Microsecond), r.RemoteAddr)
			}
		}()
		h.ServeHTTP(watched, r)
	})
}

// route returns the pattern that a request matched.
func route(r *http.Request) string {
	if r.Pattern == "" {
		return "other"
	}
	return r.Pattern
}

// watcher notes the status of an answer.
type watcher struct {
	http.ResponseWriter
	status int
}

func (w *watcher) WriteHeader(status int) {
	if w.status == 0 || w.status < 200 { // after an informational one
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watcher) Write(b []byte) (int, error) {
	w.status = max(w.status, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom keeps sendfile(2) for files.
func (w *watcher) ReadFrom(from io.Reader) (int64, error) {
	w.status = max(w.status, http.StatusOK)
	return io.Copy(w.ResponseWriter, from)
}

// Flush implements [http.Flusher], for libraries that do not unwrap.
func (w *watcher) Flush() { http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack implements [http.Hijacker], for WebSockets.
func (w *watcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.status = http.StatusSwitchingProtocols
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap lets [http.ResponseController] find the rest.
func (w *watcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// readiness is the last answer. Anyone may ask, so one check answers all questions of a second.
type readiness struct {
	mu     sync.Mutex
	at     time.Time
	checks map[string]string
	ok     bool
}

const readyFor = time.Second

// serveReady answers whether the server can make sandboxes and record what they do. It gives no reasons: those are in the
// server's messages.
func (op *Operator) serveReady(w http.ResponseWriter, _ *http.Request) {
	checks, ok := op.check()
	status, word := http.StatusOK, "ready"
	if !ok {
		status, word = http.StatusServiceUnavailable, "not ready"
	}
	answer(w, status, struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}{word, checks})
}

func (op *Operator) check() (map[string]string, bool) {
	r := &op.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < readyFor {
		return r.checks, r.ok
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	_, runner := op.opts.Sandboxes(ctx)
	was := r.ok || r.at.IsZero()
	r.checks, r.ok = map[string]string{}, true
	for name, err := range map[string]error{"runner": runner, "audit": op.failure()} {
		if r.checks[name] = "ok"; err != nil {
			r.checks[name], r.ok = "failed", false
			if was {
				op.opts.Log.Printf("not ready: %s: %v", name, err)
			}
		}
	}
	r.at = time.Now()
	return r.checks, r.ok
}
