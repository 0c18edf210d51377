package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ask sends a request with the server's token. A server that does not answer fails the test.
func (s *apiServer) ask(t *testing.T, method, path, body string, want int) string {
	t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", s.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		t.Errorf("%s %s: %d %s, want %d", method, path, resp.StatusCode, b, want)
	}
	return string(b)
}

// follow returns a function that reads events until one of a type arrives, and returns their types and its detail.
func (s *apiServer) follow(t *testing.T, path string) func(until string) (types string, detail map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func(until string) (string, map[string]string) {
		t.Helper()
		var types []string
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			var e struct {
				Type   string
				Detail map[string]string
			}
			if !ok || json.Unmarshal([]byte(text), &e) != nil {
				continue
			}
			if types = append(types, e.Type); e.Type == until {
				return strings.Join(types, " "), e.Detail
			}
		}
		t.Fatalf("no %s after %q: %v", until, types, lines.Err())
		return "", nil
	}
}

// TestServeEvents checks that what a client does is streamed, counted and recorded, that a killed server's log is whole
// and is replayed by the next one, and that a changed line is found.
func TestServeEvents(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	next := api.follow(t, "/v1/events")
	api.ask(t, "POST", "/v1/run", `{"command": "exit 3"}`, 200)
	const run = "session.created execution.started execution.failed session.killed"
	if got, detail := next("session.killed"); got != run || detail["action"] != "end" {
		t.Errorf("%q %v, want %q", got, detail, run)
	}
	api.ask(t, "POST", "/v1/run", `{"command": "sleep 60", "timeout_ms": 100}`, 200)
	if got, detail := next("execution.timeout"); detail["exit_code"] != "124" {
		t.Errorf("%q %v", got, detail)
	}
	next("session.killed")
	metrics := api.ask(t, "GET", "/metrics", "", 200)
	for _, want := range []string{`mcp_commands_total{status="failed"} 1`, `mcp_commands_total{status="timeout"} 1`, "demesne_active_commands 0\n", "mcp_active_sandboxes 0\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics: no %s", want)
		}
	}
	if got := api.ask(t, "GET", "/ready", "", 200); !strings.Contains(got, `"status":"ready"`) {
		t.Error(got)
	}
	api.stop(syscall.SIGKILL)
	if got := b.must("audit", "verify"); !strings.Contains(got, " are unchanged\nlast: ") {
		t.Error(got)
	}
	if got := b.must("audit", "list", "--type", "execution"); !strings.Contains(got, `command="/bin/sh -c exit 3"`) || strings.Contains(got, "session.") {
		t.Error(got)
	}
	mark := strings.TrimSpace(regexp.MustCompile(`last: (.*)`).FindStringSubmatch(b.must("audit", "verify"))[1])
	api = b.serveAPI("--egress", "none")
	next = api.follow(t, "/v1/events?after=0")
	if got, _ := next("session.killed"); got != run {
		t.Errorf("replayed: %q", got)
	}
	api.ask(t, "POST", "/v1/run", `{"command": "true"}`, 200)
	b.must("audit", "verify", "--mark", mark)
	files, err := filepath.Glob(b.home + "/.demesne/audit/*.jsonl")
	if err != nil || len(files) != 1 {
		t.Fatalf("%q %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Replace(string(text), "exit 3", "exit 0", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := b.demesne("audit", "verify"); r.code != 1 || !strings.Contains(r.stderr, "was changed") {
		t.Errorf("%+v", r)
	}
	if st, err := os.Stat(filepath.Dir(files[0])); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
}

// TestServeJobs checks that what the program of a job does is in the server's log and on its streams, and that no value of
// a credential is.
func TestServeJobs(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	next := api.follow(t, "/v1/events")
	const value = "s3cret-value-of-a-token"
	cmd := b.command("demesne", "run", "--secret", "TOKEN=env:GIVEN", "--secret-for", "TOKEN=api.example.com", "--allow-domain", "api.example.com", "--", "echo", value)
	cmd.Env = append(cmd.Env, "GIVEN="+value, "DEMESNE_AUDIT_LOG="+b.home+"/.demesne/audit")
	if r := b.finish(cmd); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if got, detail := next("vault.accessed"); detail["name"] != "TOKEN" || detail["host"] != "api.example.com" {
		t.Errorf("%q %v", got, detail)
	}
	if _, detail := next("execution.started"); detail["command"] != "echo "+strings.Repeat("*", len(value)) {
		t.Errorf("%v", detail)
	}
	next("execution.completed")
	if got := api.ask(t, "GET", "/v1/audit", "", 200); strings.Contains(got, "s3cret") || !strings.Contains(got, `"caller":"cli"`) {
		t.Error(got)
	}
}

// TestServeIdle checks that 500 idle clients of /v1/events need at most 100 MiB, and that each gets an event.
func TestServeIdle(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	before := rss(t, api)
	const clients = 500
	streams := make([]func(string) (string, map[string]string), clients)
	for i := range streams {
		streams[i] = api.follow(t, "/v1/events")
	}
	if got := api.ask(t, "GET", "/metrics", "", 200); !strings.Contains(got, fmt.Sprintf("demesne_event_clients %d\n", clients)) {
		t.Error("not every client is counted")
	}
	idle := rss(t, api)
	api.ask(t, "POST", "/v1/run", `{"command": "true"}`, 200)
	for _, next := range streams {
		next("session.killed")
	}
	after := rss(t, api)
	t.Logf("%d idle clients: %d MiB, before %d MiB, after an event %d MiB", clients, idle>>20, before>>20, after>>20)
	if max(idle, after) > 100<<20 {
		t.Errorf("the server has %d MiB", max(idle, after)>>20)
	}
}

// rss returns the server's memory.
func rss(t *testing.T, api *apiServer) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", api.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// TestServeUnrecorded checks that nothing starts by any API while the audit log cannot be written, that callers can look and
// remove meanwhile, and that all goes on once it can.
func TestServeUnrecorded(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "none")
	api.ask(t, "POST", "/v1/sandboxes", `{"name":"kept"}`, 201)
	api.stop(syscall.SIGTERM)
	if err := os.RemoveAll(b.home + "/.demesne/audit"); err != nil {
		t.Fatal(err)
	}
	inTheWay := b.mkdir("h/.demesne/audit/00000000000000000001.jsonl")
	api = b.serveAPI("--egress", "none")
	api.ask(t, "GET", "/v1/sandboxes/none", "", 404)
	api.ask(t, "GET", "/v1/audit?after=x", "", 400)
	api.ask(t, "DELETE", "/v1/sandboxes/kept", "", 204) // the first event that is not recorded
	for _, c := range []struct{ path, body string }{
		{"/v1/run", `{"command":"true"}`}, {"/v1/sandboxes", `{}`}, {"/v1/jobs", `{"command":"true"}`}, {"/sandboxes", `{}`},
	} {
		if text := api.ask(t, "POST", c.path, c.body, 503); !strings.Contains(text, "the audit log cannot be written") || strings.Contains(text, b.dir) {
			t.Errorf("%s: %s", c.path, text)
		}
	}
	me := tenant{t: t, url: api.url, token: api.key}
	for _, tool := range []string{"sandbox_script", "run_sandbox"} {
		if text, failed := me.tool(tool, map[string]any{"command": "true", "commands": []any{map[string]any{"shell": "true"}}, "identifier": "r"}); !failed || !strings.Contains(text, "the audit log cannot be written") {
			t.Errorf("%s: %s", tool, text)
		}
	}
	api.ask(t, "GET", "/v1/sandboxes", "", 200)
	api.ask(t, "GET", "/ready", "", 503)
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to be ready", func() bool {
		resp, err := http.Get(api.url + "/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	api.ask(t, "POST", "/v1/run", `{"command":"true"}`, 200)
	if text := api.ask(t, "GET", "/v1/audit", "", 200); !strings.Contains(text, `"session.killed"`) || !strings.Contains(text, `"late":"`) {
		t.Error(text)
	}
}

// TestServeNotify checks that a service manager hears when the server is ready, from the process that it started.
func TestServeNotify(t *testing.T) {
	b := newBox(t)
	path := b.dir + "/notify"
	at, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	b.extra = append(b.extra, "NOTIFY_SOCKET="+path)
	api := b.serveAPI("--egress", "none")
	at.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 100)
	if n, _, err := at.ReadFromUnix(buf); err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if text := api.ask(t, "POST", "/v1/run", `{"command":"env"}`, 200); strings.Contains(text, "NOTIFY") {
		t.Error(text)
	}
}
