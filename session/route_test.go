package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/need"
	"demesne/runner"
	"demesne/session"
)

// realCredential is what a route inserts. It must never reach a sandbox or a file.
const realCredential = "real-credential-0f1e2d3c4b5a"

// model is a server of a language model's interface, and a Service with routes to it.
type model struct {
	*testing.T
	dir      string
	sessions *session.Service
	server   *httptest.Server
	good     string // the credential that the server accepts

	mu   sync.Mutex
	seen []string // "METHOD /path Authorization" of each request
}

func newModel(t *testing.T) *model {
	m := &model{T: t, dir: place(t), good: realCredential}
	m.server = httptest.NewServer(m)
	t.Cleanup(m.server.Close)
	m.sessions = session.New(session.Options{})
	t.Cleanup(m.sessions.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.seen = append(m.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	good := m.good
	m.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+good {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Echo", r.Header.Get("Authorization"))
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"type\":\"message_start\",\"message\":{\"id\":\"%s\",\"model\":\"m\",\"usage\":{\"input_tokens\":5}}}\n\n", b)
	fmt.Fprintf(w, "data: {\"type\":\"text\",\"text\":\"%s\"}\n\n", good)
	http.NewResponseController(w).Flush()
	io.WriteString(w, "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":6}}\n\ndata: {\"type\":\"message_stop\"}\n\n")
}

// accept sets the credential that the server accepts.
func (m *model) accept(credential string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.good = credential
}

// egress returns the settings of a sandbox with a route on port 8088, and its token.
func (m *model) egress(n int) (e session.Egress, token string) {
	token = fmt.Sprintf("demesne-agent-%064d", n)
	return session.Egress{Routes: []runner.Route{{
		Port: 8088, To: m.server.URL + "/api", Allow: []string{"POST /v1/messages"}, Token: token,
		Header: map[string]string{"Authorization": "Bearer " + realCredential}, Usage: "messages", Record: m.dir + "/usage.jsonl",
	}}}, token
}

func shell(script string, env ...string) session.RunOptions {
	return session.RunOptions{Command: runner.Command{Argv: []string{"bash", "-c", script}, Env: env, Account: true}}
}

// request is shell text that sends a message and prints the response with its status.
const request = `curl -sS -N --noproxy '*' -w '%{http_code}\n' -H "X-Api-Key: $KEY" -d "$BODY" http://127.0.0.1:8088/v1/messages`

// streamed is what a sandbox gets for the message "x".
var streamed = `data: {"type":"message_start","message":{"id":"x","model":"m","usage":{"input_tokens":5}}}

data: {"type":"text","text":"` + strings.Repeat("*", len(realCredential)) + `"}

data: {"type":"message_delta","usage":{"output_tokens":6}}

data: {"type":"message_stop"}

200
`

// search is a Python program that prints each place of the sandbox that contains the credential.
var search = `
import os
needle = ("` + realCredential[:9] + `" + "` + realCredential[9:] + `").encode()
def look(path):
    try:
        with open(path, "rb") as f:
            if needle in f.read(1 << 22): print("found in", path)
    except OSError: pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "status", "mountinfo"): look("/proc/%s/%s" % (pid, name))
for top in ("/in", "/out", "/workspace", "/tmp", "/run", "/root", "/home", "/var", "/etc", "/dev/shm"):
    for dir, _, names in os.walk(top):
        for name in names: look(os.path.join(dir, name))
print("searched")
`

// TestEscapeN37Route checks a route from inside a sandbox: what passes, what does not, and that the credential is
// nowhere in the sandbox and in no file.
func TestEscapeN37Route(t *testing.T) {
	need.Program(t, "curl")
	m := newModel(t)
	e, token := m.egress(1)
	script := request + "\n" + `code() { curl -sS --noproxy '*' -o /dev/null -w '%{http_code} ' "$@"; }
at=http://127.0.0.1:8088; auth="Authorization: Bearer $KEY"
code -X POST $at/v1/messages; code -H "Authorization: Bearer $OTHER" -d x $at/v1/messages; code -H "X-Goog-Api-Key: ${KEY}x" -d x $at/v1/messages
code -H "$auth" $at/v1/messages; code -H "$auth" -d x $at/v1/other; code -H "$auth" -d x $at/; code --path-as-is -H "$auth" -d x $at/v1/x/../messages
code -H "$auth" -d x $at/v1%2fmessages; code -H "$auth" -H 'Connection: Upgrade' -H 'Upgrade: websocket' -d x $at/v1/messages; echo
python3 -c "$SEARCH"`
	input := filepath.Join(m.dir, "input")
	if err := os.WriteFile(input, []byte("data of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, other := m.egress(2)
	c := session.CreateOptions{Egress: e, Spec: runner.Spec{Inputs: []runner.Input{{Path: input, Name: "input"}}}}
	done, err := m.sessions.Run(t.Context(), c, shell(script, "KEY="+token, "OTHER="+other, "BODY=x", "SEARCH="+search), session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	want := streamed + "401 401 401 403 403 403 403 403 403 \nsearched\n"
	if done.Stdout.Text != want || done.Stderr.Text != "" {
		t.Errorf("inside: %q, %q, want %q", done.Stdout.Text, done.Stderr.Text, want)
	}
	if len(m.seen) != 1 || m.seen[0] != "POST /api/v1/messages Bearer "+realCredential {
		t.Errorf("the server saw %q", m.seen)
	}
	if r := done.Receipt; r == nil || r.Network != "filtered: 0 rules, 1 route" {
		t.Errorf("receipt: %+v", r)
	}
	if len(done.Denied) != 3 || done.Denied[0].Times+done.Denied[1].Times+done.Denied[2].Times != 9 {
		t.Errorf("denied: %+v", done.Denied)
	}
	log, _ := os.ReadFile(done.EgressLog)
	if n := bytes.Count(log, []byte(`"via":"route","host":"127.0.0.1","port":8088,"request":"POST /v1/messages"`)); n < 2 {
		t.Errorf("log: %s", log)
	}
	m.usage(1, func(u runner.UsageRecord) bool {
		return u.RequestID == "x" && u.Model == "m" && u.Input == 5 && u.Output == 6 && u.Status == 200 && !u.Cut
	})
	m.nowhere(realCredential, token)
}

// usage checks the lines of the usage records.
func (m *model) usage(n int, ok func(runner.UsageRecord) bool) {
	m.Helper()
	text, err := os.ReadFile(m.dir + "/usage.jsonl")
	if err != nil {
		m.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if len(lines) != n+1 {
		m.Errorf("%d records of usage, not %d: %s", len(lines)-1, n, text)
	}
	for _, line := range lines[:len(lines)-1] {
		var u runner.UsageRecord
		if err := json.Unmarshal([]byte(line), &u); err != nil || u.Time.IsZero() || !ok(u) {
			m.Errorf("usage: %v: %s", err, line)
		}
	}
}

// nowhere checks that no file of demesne contains a word.
func (m *model) nowhere(words ...string) {
	m.Helper()
	filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, m.dir+"/bin/") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, w := range words {
			if err == nil && bytes.Contains(text, []byte(w)) {
				m.Errorf("%s contains %q", path, w)
			}
		}
		return nil
	})
}

// TestRouteLive checks a persistent sandbox: a renewed credential serves the next request, the route works after the
// proxy has died, and a restart needs the credentials again.
func TestRouteLive(t *testing.T) {
	need.Program(t, "curl")
	m := newModel(t)
	e, token := m.egress(1)
	again := e.Routes
	ctx := t.Context()
	sb, err := m.sessions.Create(ctx, session.CreateOptions{Egress: e}, session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(s *session.Service, want string) *session.RunResult {
		t.Helper()
		done, err := s.Exec(ctx, sb.ID, shell(request, "KEY="+token, "BODY=x"), session.Callbacks{})
		if err != nil {
			t.Fatal(err)
		}
		if done.Stdout.Text != want {
			t.Errorf("%q, %q, want %q", done.Stdout.Text, done.Stderr.Text, want)
		}
		return done
	}
	ask(m.sessions, streamed)
	const renewed = "renewed-credential-99aabbccd" // as long as the other one
	m.accept(renewed)
	ask(m.sessions, "401\n")
	change := func(port uint16) error {
		return m.sessions.With(ctx, func(e session.Engine) error {
			return e.ChangeEgress(ctx, runner.EgressChange{Sandbox: sb.ID, Headers: map[uint16]map[string]string{port: {"Authorization": "Bearer " + renewed}}})
		})
	}
	if err := change(8087); err == nil || !strings.Contains(err.Error(), "no route on port 8087") {
		t.Errorf("another port: %v", err)
	}
	if err := change(8088); err != nil {
		t.Fatal(err)
	}
	ask(m.sessions, streamed)
	m.killProxy()
	ask(m.sessions, streamed)

	info, err := m.sessions.Inspect(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(info)
	if bytes.Contains(text, []byte(token)) || bytes.Contains(text, []byte("credential")) || !bytes.Contains(text, []byte(`"port":8088`)) {
		t.Errorf("inspect: %s", text)
	}
	stop := func() {
		t.Helper()
		if err := m.sessions.With(ctx, func(e session.Engine) error { return e.Stop(ctx, sb.ID, 0) }); err != nil {
			t.Fatal(err)
		}
		m.nowhere(realCredential, renewed, token)
	}
	stop()
	const refused = `{"type":"error","error":{"type":"authentication_error","message":"blocked by demesne: 127.0.0.1:8088: the request has no valid token for this route","code":401}}` + "\n401\n"
	if done := ask(m.sessions, refused); strings.Join(done.MissingSecrets, "") != "127.0.0.1:8088" {
		t.Errorf("a restart without credentials lacks %q", done.MissingSecrets)
	}
	stop()
	m.accept(realCredential)
	knows := session.New(session.Options{Routes: func(runner.Spec) []runner.Route { return again }})
	defer knows.Close()
	if done := ask(knows, streamed); done.MissingSecrets != nil {
		t.Errorf("lacks %q", done.MissingSecrets)
	}
	if err := m.sessions.Remove(ctx, sb.ID); err != nil {
		t.Error(err)
	}
}

// killProxy kills the proxies of this test's runner: its children are descendants of this process, or of a runner
// that serves the run directory of the test.
func (m *model) killProxy() {
	m.Helper()
	killed := 0
	found, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range found {
		comm, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if string(comm) == "demesne-proxy\n" && m.mine(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed != 1 {
		m.Fatalf("killed %d proxies", killed)
	}
}

// mine reports whether a proxy's runner has this test's run directory in its environment.
func (m *model) mine(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return false
	}
	env, _ := os.ReadFile("/proc/" + fields[1] + "/environ")
	return bytes.Contains(env, []byte(m.dir))
}

// TestRouteMany checks 20 sandboxes at once, and that the token of one is worth nothing in another. It makes them
// twice, as the second time prepared sandboxes may serve.
func TestRouteMany(t *testing.T) {
	t.Setenv("DEMESNE_POOL_SIZE", "4")
	need.Program(t, "curl")
	m := newModel(t)
	for round := range 2 {
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				e, token := m.egress(n)
				_, other := m.egress(n + 1)
				script := request + "; KEY=" + other + "; " + strings.Replace(request, "-sS", "-sS -o /dev/null", 1)
				done, err := m.sessions.Run(t.Context(), session.CreateOptions{Egress: e}, shell(script, "KEY="+token, "BODY=x"), session.Callbacks{})
				if err != nil {
					t.Error(err)
				} else if done.Stdout.Text != streamed+"401\n" {
					t.Errorf("round %d, sandbox %d: %q, %q", round, n, done.Stdout.Text, done.Stderr.Text)
				}
			})
		}
		all.Wait()
	}
	m.usage(40, func(u runner.UsageRecord) bool { return u.Input == 5 && u.Output == 6 })
}

// TestRouteRefused checks that routes which cannot be served fail the creation of a sandbox, with errors that contain
// no credential.
func TestRouteRefused(t *testing.T) {
	need.Program(t, "curl")
	m := newModel(t)
	for want, change := range map[string]func(*session.Egress){
		"its token is shorter than":   func(e *session.Egress) { e.Routes[0].Token = "short" },
		"two routes on port 8088":     func(e *session.Egress) { e.Routes = append(e.Routes, e.Routes[0]) },
		"the Go module proxy has":     func(e *session.Egress) { e.Routes[0].Port, e.GoProxy = 8087, true },
		"not an http or https URL":    func(e *session.Egress) { e.Routes[0].To = "file:///etc/passwd" },
		"unknown wire format":         func(e *session.Egress) { e.Routes[0].Usage = "x" },
		"which the sandbox can write": func(e *session.Egress) { e.Routes[0].Record = m.dir + "/w/usage" },
	} {
		e, _ := m.egress(1)
		change(&e)
		if err := os.MkdirAll(m.dir+"/w", 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := m.sessions.Run(t.Context(), session.CreateOptions{Egress: e, Spec: runner.Spec{Workspace: m.dir + "/w"}}, shell("true"), session.Callbacks{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), realCredential) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// events is the number of events of a stream of BenchmarkRouteEvent.
const events = 500

// clock sends its time as an event every 2 ms.
type clock struct{}

func (clock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	for range events {
		time.Sleep(2 * time.Millisecond) // the rate at which a model writes
		var now unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		fmt.Fprintf(w, "data: {\"type\":\"text\",\"at\":\"%d\"}\n\n", now.Nano())
		http.NewResponseController(w).Flush()
	}
}

// listener is a Python program that prints the median age of the events that it reads, in microseconds. It uses the machine's
// clock.
const listener = `
import os, socket, statistics, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(("POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: 2\r\n\r\n{}" % os.environ["KEY"]).encode())
ages = []
with s.makefile("rb") as f:
    while len(ages) < int(os.environ["EVENTS"]):
        line = f.readline()
        if line.startswith(b"data: "):
            ages.append(time.monotonic_ns() - int(line.split(b'"')[7]))
print(int(statistics.median(ages) / 1000))
`

// BenchmarkRouteEvent measures the median time from a server's write of an event to the read of a client, for a client
// on the host and for one in a sandbox behind a route. integration/bench reports the difference.
func BenchmarkRouteEvent(b *testing.B) {
	place(b)
	server := httptest.NewServer(clock{})
	defer server.Close()
	sessions := session.New(session.Options{})
	defer sessions.Close()
	const token = "demesne-agent-0123456789"
	e := session.Egress{Routes: []runner.Route{{Port: 8088, To: server.URL, Allow: []string{"POST /v1/messages"}, Token: token, Usage: "messages",
		Header: map[string]string{"Authorization": "Bearer " + realCredential}}}}
	env := []string{"KEY=" + token, fmt.Sprintf("EVENTS=%d", events)}
	var direct, route []float64
	for b.Loop() {
		cmd := exec.Command("python3", "-c", listener, strings.TrimPrefix(server.URL, "http://127.0.0.1:"))
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.Output()
		direct = append(direct, microseconds(b, string(out), err))
		done, err := sessions.Run(b.Context(), session.CreateOptions{Egress: e}, session.RunOptions{Command: runner.Command{Argv: []string{"python3", "-c", listener, "8088"}, Env: env}}, session.Callbacks{})
		if err != nil {
			b.Fatal(err)
		}
		route = append(route, microseconds(b, done.Stdout.Text, nil))
	}
	slices.Sort(direct)
	slices.Sort(route)
	b.ReportMetric(direct[len(direct)/2], "direct-us")
	b.ReportMetric(route[len(route)/2], "route-us")
}

func microseconds(b *testing.B, s string, err error) float64 {
	b.Helper()
	v, wrong := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err := errors.Join(err, wrong); err != nil {
		b.Fatal(err)
	}
	return v
}
