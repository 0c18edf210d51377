package operate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/runner"
	"demesne/server"
	"demesne/session/audit"
	"demesne/session/events"
)

// rig is an Operator behind a server, whose callers name themselves in the header Who: NAME or NAME@NAMESPACE.
type rig struct {
	*testing.T
	*Operator
	url  string
	dir  string
	said bytes.Buffer
	list func() ([]runner.Info, error)
}

func newRig(t *testing.T, dir string, env map[string]string) *rig {
	t.Helper()
	r := &rig{T: t, dir: dir, list: func() ([]runner.Info, error) { return nil, nil }}
	op, err := New(t.Context(), Options{
		Dir: dir, Log: log.New(&r.said, "", 0), Version: "1.2.3", Getenv: func(name string) string { return env[name] }, Requests: true,
		Sandboxes: func(context.Context) ([]runner.Info, error) { return r.list() },
	}, &events.Bus{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(op.Close)
	r.Operator = op
	mux := http.NewServeMux()
	known := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			name, space, _ := strings.Cut(q.Header.Get("Who"), "@")
			h.ServeHTTP(w, q.WithContext(server.WithCaller(q.Context(), server.Caller{Name: name, Namespace: space, Operator: name == "operator"})))
		})
	}
	op.Routes(func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, known(h)) })
	op.Open(func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, h) })
	mux.HandleFunc("POST /do/{sandbox}", func(w http.ResponseWriter, q *http.Request) {
		ctx := server.WithCaller(q.Context(), server.Caller{Name: q.Header.Get("Who")})
		op.Observe(ctx, events.Event{Type: events.ExecutionStarted, Sandbox: q.PathValue("sandbox"), Run: "r1", Detail: map[string]string{"command": "make secret-argument"}})
		op.Observe(ctx, events.Event{Type: events.ExecutionFailed, Sandbox: q.PathValue("sandbox"), Run: "r1",
			Detail: map[string]string{"exit_code": "3", "seconds": "0.5", "cpu_seconds": "0.25", "reason": "exited"}})
	})
	s := httptest.NewServer(op.Handler(mux))
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

// by is the context of a caller's request.
func by(name, namespace string) context.Context {
	return server.WithCaller(context.Background(), server.Caller{Name: name, Namespace: namespace, Operator: name == "operator"})
}

func (r *rig) get(who, path string, want int) string {
	r.Helper()
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Who", who)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		r.Errorf("%s: %d %s, want %d", path, resp.StatusCode, b, want)
	}
	return string(b)
}

// listen reads events as lines "ID TYPE SANDBOX".
func (r *rig) listen(who, path string, headers ...string) (next func() string, stop func()) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Who", who)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.Fatalf("%v %v", resp, err)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			if strings.HasPrefix(lines.Text(), ": connected") {
				return "connected"
			}
			var e events.Event
			if ok && json.Unmarshal([]byte(text), &e) == nil {
				return fmt.Sprint(e.ID, " ", e.Type, " ", e.Sandbox)
			}
		}
		return "end"
	}, func() { cancel(); resp.Body.Close() }
}

func (r *rig) expect(next func() string, want ...string) {
	r.Helper()
	for _, w := range want {
		if got := next(); got != w {
			r.Errorf("%q, want %q", got, w)
		}
	}
}

// TestStream checks who sees which events, filters, and replay, also after a restart.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, nil)
	all, stop := r.listen("operator", "/v1/events")
	defer stop()
	mine, stop := r.listen("ann@a", "/v1/events?type=session")
	defer stop()
	r.expect(all, "connected")
	r.expect(mine, "connected")
	r.Observe(by("ann", "a"), events.Event{Type: events.SessionCreated, Sandbox: "s1"})
	r.Observe(by("bob", "b"), events.Event{Type: events.SessionCreated, Sandbox: "s2"})
	r.Observe(t.Context(), events.Event{Type: events.ExecutionStarted, Sandbox: "s1"})
	r.Observe(t.Context(), events.Event{Type: events.SessionKilled, Sandbox: "s1"}) // its owner is known
	r.expect(all, "1 session.created s1", "2 session.created s2", "3 execution.started s1", "4 session.killed s1")
	r.expect(mine, "1 session.created s1", "4 session.killed s1")
	r.Close()

	r = newRig(t, dir, nil)
	r.Observe(by("bob", "b"), events.Event{Type: events.SessionKilled, Sandbox: "s2"})
	for _, c := range []struct {
		who, path, last string
		want            []string
	}{
		{"operator", "/v1/events?after=2", "", []string{"3 execution.started s1", "4 session.killed s1", "5 session.killed s2", "connected"}},
		{"operator", "/v1/events", "4", []string{"5 session.killed s2", "connected"}},
		{"operator", "/v1/events?last=2", "", []string{"4 session.killed s1", "5 session.killed s2", "connected"}},
		{"operator", "/v1/events?last=1&sandbox=s1", "", []string{"4 session.killed s1", "connected"}},
		{"bob@b", "/v1/events?after=0", "", []string{"2 session.created s2", "5 session.killed s2", "connected"}},
		{"operator", "/v1/events?after=0&namespace=a&type=execution.started", "", []string{"3 execution.started s1", "connected"}},
		{"eve@c", "/v1/events?after=0", "", []string{"connected"}},
	} {
		next, stop := r.listen(c.who, c.path, "Last-Event-ID", c.last)
		r.expect(next, c.want...)
		stop()
	}
	for _, path := range []string{"/v1/events?after=x", "/v1/events?since=now", "/v1/events?tpye=x", "/v1/events?type=a&type=b", "/v1/events?last=-1"} {
		r.get("operator", path, http.StatusBadRequest)
	}
	r.get("ann@a", "/v1/events?namespace=b", http.StatusBadRequest)
}

// TestStreamSlow checks that a client that reads nothing is dropped with its memory bounded, and that the others are
// served meanwhile.
func TestStreamSlow(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	_, stop := r.listen("operator", "/v1/events")
	defer stop()
	fast, stopFast := r.listen("operator", "/v1/events")
	defer stopFast()
	r.expect(fast, "connected")
	for i := range 2000 {
		r.Observe(by("ann", "a"), events.Event{Type: events.ExecutionStarted, Sandbox: "s", Detail: map[string]string{"command": strings.Repeat("x", 4000)}})
		r.expect(fast, fmt.Sprint(i+1, " execution.started s"))
	}
}

// TestEntries checks the pages of the audit log, who sees what, and that a changed line is found.
func TestEntries(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	for i := range 30 {
		r.Observe(by("ann", string(rune('a'+i%2))), events.Event{Type: events.SessionCreated, Sandbox: fmt.Sprint("s", i)})
	}
	count := func(who, path string, first string, n int) {
		t.Helper()
		var got struct{ Entries []events.Event }
		if err := json.Unmarshal([]byte(r.get(who, path, http.StatusOK)), &got); err != nil || len(got.Entries) != n || n > 0 && got.Entries[0].Sandbox != first {
			t.Errorf("%s: %d %v %v", path, len(got.Entries), got.Entries, err)
		}
	}
	count("operator", "/v1/audit", "s0", 30)
	count("operator", "/v1/audit?limit=2", "s28", 2)
	count("operator", "/v1/audit?limit=2&after=4", "s4", 2)
	count("bob@b", "/v1/audit", "s1", 15)
	count("bob@c", "/v1/audit", "", 0)
	r.get("operator", "/v1/audit?limit=0", http.StatusBadRequest)
	r.get("bob@b", "/v1/audit/verify", http.StatusForbidden)
	r.get("bob@b", "/metrics", http.StatusForbidden)
	if got := r.get("operator", "/v1/audit/verify", http.StatusOK); !strings.Contains(got, `"wrong":[]`) {
		t.Error(got)
	}
	files, _ := filepath.Glob(r.dir + "/*.jsonl")
	b, _ := os.ReadFile(files[0])
	if err := os.WriteFile(files[0], bytes.Replace(b, []byte(`"s5"`), []byte(`"s6"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.get("operator", "/v1/audit/verify", http.StatusOK); !strings.Contains(got, "entry 6 was changed") {
		t.Error(got)
	}
}

// TestReady checks the answers of a server that works, of one without a runner, and of one that cannot record events.
func TestReady(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	again := func() { r.ready.mu.Lock(); r.ready.at = time.Time{}.Add(1); r.ready.mu.Unlock() }
	r.get("", "/ready", http.StatusOK)
	r.list = func() ([]runner.Info, error) { return nil, errors.New("/a/path of the host") }
	again()
	if got := r.get("", "/ready", http.StatusServiceUnavailable); strings.Contains(got, "path") || !strings.Contains(got, `"runner":"failed"`) {
		t.Error(got)
	}
	if !strings.Contains(r.said.String(), "not ready: runner: /a/path of the host") {
		t.Error(r.said.String())
	}
	r.list = func() ([]runner.Info, error) { return nil, nil }
	r.audit.Close()
	r.Observe(t.Context(), events.Event{Type: events.SessionCreated})
	again()
	if got := r.get("", "/ready", http.StatusServiceUnavailable); !strings.Contains(got, `"audit":"failed"`) {
		t.Error(got)
	}
}

// TestMetrics checks the names, among them system 1's, that values follow events, and that no label has a value
// that a client chose.
func TestMetrics(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	r.list = func() ([]runner.Info, error) {
		return []runner.Info{{State: runner.Running}, {State: runner.Running}, {State: runner.Snapshot}}, nil
	}
	r.Observe(t.Context(), events.Event{Type: events.ExecutionStarted, Run: "1"})
	r.Observe(t.Context(), events.Event{Type: events.ExecutionStarted, Run: "2"})
	r.Observe(t.Context(), events.Event{Type: events.ExecutionTimeout, Run: "2", Detail: map[string]string{"seconds": "7", "cpu_seconds": "1.5"}})
	r.Observe(t.Context(), events.Event{Type: events.ResourceExceeded, Detail: map[string]string{"limit": "oom"}})
	r.Observe(t.Context(), events.Event{Type: events.ResourceExceeded, Detail: map[string]string{"limit": "hostile text"}})
	r.Observe(t.Context(), events.Event{Type: "hostile.type"})
	r.Observe(t.Context(), events.Event{Type: events.SessionKilled, Detail: map[string]string{"cause": "timeout"}})
	for range 3 {
		r.RunBegan()
	}
	r.RunEnded(true, false)
	r.RunEnded(true, true)
	r.get("", "/hostile-path", http.StatusNotFound)
	got := r.get("operator", "/metrics", http.StatusOK)
	for _, want := range []string{
		"mcp_active_sandboxes 2\n", "demesne_active_commands 1\n", "mcp_active_runs 1\n", `mcp_runs_total{status="failed"} 1`, `mcp_runs_total{status="canceled"} 1`, `mcp_commands_total{status="timeout"} 1`,
		"mcp_reaper_deletes_total 1\n", "mcp_command_duration_seconds_count 1\n", "go_goroutines ", "process_resident_memory_bytes ",
		`demesne_sandboxes{state="running"} 2`, `demesne_sandboxes{state="snapshot"} 1`, `demesne_limit_hits_total{limit="oom"} 1`,
		`demesne_limit_hits_total{limit="other"} 1`, `demesne_events_total{type="other"} 1`, "demesne_command_cpu_seconds_total 1.5\n",
		`demesne_http_requests_total{code="404",method="GET",route="other"} 1`, `demesne_build_info{version="1.2.3"} 1`, "demesne_event_clients 0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(got, "hostile") {
		t.Error("a label has a value that a client chose")
	}
	for _, line := range []string{"GET /hostile-path 404 ", "GET /metrics 200 "} {
		if !strings.Contains(r.said.String(), line) {
			t.Errorf("no %q in %s", line, r.said.String())
		}
	}
}

// TestTraces checks that spans of requests and commands reach a collector, in the trace of the client, without the
// arguments of commands; and which settings are refused.
func TestTraces(t *testing.T) {
	var (
		mu   sync.Mutex
		sent []byte
	)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		mu.Lock()
		sent = append(sent, b...)
		mu.Unlock()
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment=test-place")
	r := newRig(t, t.TempDir(), map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL})
	req, _ := http.NewRequest(http.MethodPost, r.url+"/do/s1?signature=hidden-query", nil)
	req.Header.Set("traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	r.traces.close()
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"POST /do/{sandbox}", "exec make", "demesne-server", "test-place", "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"} {
		if !bytes.Contains(sent, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"secret-argument", "hidden-query"} {
		if bytes.Contains(sent, []byte(bad)) {
			t.Errorf("%s was sent", bad)
		}
	}
	for _, env := range []map[string]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "zipkin"},
	} {
		if _, err := newTraces(t.Context(), func(name string) string { return env[name] }, "", log.Default()); err == nil {
			t.Errorf("%v: accepted", env)
		}
	}
}

// TestOthers checks that what other programs append is published once, in its order.
func TestOthers(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	next, stop := r.listen("operator", "/v1/events")
	defer stop()
	r.expect(next, "connected")
	other, err := audit.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	add := func(sandbox string) {
		t.Helper()
		if _, err := other.Append(events.Event{Type: events.SessionCreated, Sandbox: sandbox}); err != nil {
			t.Fatal(err)
		}
	}
	add("job1")
	add("job2")
	r.Observe(t.Context(), events.Event{Type: events.SessionCreated, Sandbox: "mine"})
	add("job3")
	r.expect(next, "1 session.created job1", "2 session.created job2", "3 session.created mine", "4 session.created job3")
	r.Observe(t.Context(), events.Event{Type: events.SessionKilled, Sandbox: "mine"})
	r.expect(next, "5 session.killed mine")
	if got := r.get("operator", "/metrics", http.StatusOK); !strings.Contains(got, `demesne_events_total{type="session.created"} 4`) {
		t.Error(got)
	}
}

// TestRefused checks that refused requests are recorded, many as one, and those that a program in a sandbox refused are
// not.
func TestRefused(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	next, stop := r.listen("operator", "/v1/events")
	defer stop()
	r.expect(next, "connected")
	for range 50 {
		r.get("ann@a", "/metrics?token=hidden", http.StatusForbidden)
	}
	h := r.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/of/a/sandbox", nil))
	r.refusals.mu.Lock()
	r.refusals.at = time.Time{}
	r.refusals.mu.Unlock()
	r.get("ann@a", "/v1/audit/verify", http.StatusForbidden)
	r.expect(next, "1 access.refused ", "2 access.refused ")
	got := r.get("operator", "/v1/audit", http.StatusOK)
	if !strings.Contains(got, `"requests":"50"`) || strings.Contains(got, "hidden") || strings.Contains(got, "/of/a/sandbox") {
		t.Error(got)
	}
}
