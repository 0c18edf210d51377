package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// runsClient is a client of mcp-sandboxd: it sends plain JSON, and has no session.
type runsClient struct {
	t *testing.T
	s *apiServer
	// namespace is its requests' namespace; empty: the operator's.
	namespace string
}

// send returns the answer to a request.
func (c runsClient) send(method, path, body string, header ...string) (*http.Response, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.s.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.s.key)
	if c.namespace != "" {
		req.Header.Set("Demesne-Namespace", c.namespace)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, string(text)
}

// get returns an answer with an expected status, as JSON.
func (c runsClient) get(method, path, body string, want int) (v map[string]any) {
	c.t.Helper()
	resp, text := c.send(method, path, body)
	if resp.StatusCode != want {
		c.t.Fatalf("%s %s: %d %s, want %d", method, path, resp.StatusCode, text, want)
	}
	json.Unmarshal([]byte(text), &v)
	return v
}

// call calls a tool, and returns its structured result or the error.
func (c runsClient) call(tool string, arguments any) (result map[string]any, failed map[string]any) {
	c.t.Helper()
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	v := c.get("POST", "/mcp", string(b), 200)
	failed, _ = v["error"].(map[string]any)
	if r, ok := v["result"].(map[string]any); ok {
		result, _ = r["structuredContent"].(map[string]any)
	}
	return result, failed
}

// run runs shell commands without a network, and returns the run.
func (c runsClient) run(identifier string, options map[string]any, commands ...map[string]any) map[string]any {
	c.t.Helper()
	o := map[string]any{"egress": "none", "await_completion": true, "await_timeout_ms": 60000}
	for k, v := range options {
		o[k] = v
	}
	r, failed := c.call("run_sandbox", map[string]any{"identifier": identifier, "commands": commands, "options": o})
	if failed != nil {
		c.t.Fatalf("run_sandbox: %v", failed)
	}
	if run, ok := r["final"].(map[string]any); ok {
		return run
	}
	return r
}

func inShell(text string) map[string]any { return map[string]any{"shell": text} }

// command returns the i-th command of a run.
func command(run map[string]any, i int) map[string]any {
	return run["commands"].([]any)[i].(map[string]any)
}

// events reads the events of a run until one that until accepts, or the end, and returns their types and the last id.
func (c runsClient) events(id string, last int, until func(kind, data string) bool) (kinds []string, number int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", c.s.url+"/mcp/events?run_id="+id, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.s.key)
	if last > 0 {
		req.Header.Set("Last-Event-ID", strconv.Itoa(last))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil, last
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			number, _ = strconv.Atoi(value)
		case "event":
			kinds = append(kinds, value)
		case "data":
			if until(kinds[len(kinds)-1], value) {
				return kinds, number
			}
		}
	}
	return kinds, number
}

func never(string, string) bool { return false }

// TestServeRuns uses the tools and endpoints of mcp-sandboxd, with runs that succeed, fail, take too long, write too much,
// are canceled, and outlive a killed server.
func TestServeRuns(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	api := b.serveAPI("--egress", "none")
	c := runsClient{t: t, s: api}
	t.Run("endpoint", func(t *testing.T) { runsEndpoint(runsClient{t: t, s: api}) })
	t.Run("run", func(t *testing.T) { runsRun(runsClient{t: t, s: api}) })
	t.Run("bounds", func(t *testing.T) { runsBounds(runsClient{t: t, s: api}) })
	t.Run("artifacts", func(t *testing.T) { runsArtifacts(runsClient{t: t, s: api}) })
	t.Run("namespaces", func(t *testing.T) { runsNamespaces(b, runsClient{t: t, s: api}) })
	t.Run("jobs", func(t *testing.T) { runsJobs(runsClient{t: t, s: api}) })
	t.Run("wire", func(t *testing.T) { runsWire(runsClient{t: t, s: api}) })
	b.Cleanup(func() { os.RemoveAll(b.home + "/.demesne/turns") }) // directory of the line of runs with lock_sandbox

	started := c.run("kept", map[string]any{"await_completion": false}, inShell("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.2; done; echo kept >/artifacts/f"))
	id := started["run_id"].(string)
	job := c.get("POST", "/v1/jobs", `{"command":"sleep 1.5; echo done"}`, 201)["id"].(string)
	before, last := c.events(id, 0, func(kind, data string) bool { return kind == "command_stdout" && strings.Contains(data, `"chunk":"2`) })
	api.stop(syscall.SIGKILL)
	c.s = b.serveAPI("--egress", "package-managers")
	after, end := c.events(id, last, never)
	if !slices.Contains(before, "run_started") || slices.Contains(after, "run_started") || len(after) == 0 || after[len(after)-1] != "run_finished" {
		t.Errorf("before the server was killed: %v, afterwards: %v", before, after)
	}
	if again, _ := c.events(id, end, never); again != nil {
		t.Errorf("after its end: %v", again)
	}
	whole := c.get("GET", "/mcp/runs/"+id, "", 200)
	if whole["state"] != "completed" || command(whole, 0)["stdout"] != "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" {
		t.Errorf("%v", whole)
	}
	if _, text := c.send("GET", "/artifacts/kept/latest/f", ""); text != "kept\n" {
		t.Errorf("%q", text)
	}
	// Other settings replace the sandbox and its files.
	if r := c.run("kept", map[string]any{"egress": "package-managers"}, inShell("test ! -e /artifacts/f")); r["state"] != "completed" || r["sandbox_container_id"] == whole["sandbox_container_id"] {
		t.Errorf("%v", r)
	}
	if j := c.get("POST", "/v1/jobs/"+job+"/wait?timeout_ms=300000", "", 200); j["status"] != "succeeded" || j["stdout"].(map[string]any)["text"] != "done\n" {
		t.Errorf("%v", j)
	}
	for _, want := range []string{"mcp_active_runs 0\n", `mcp_runs_total{status="completed"} 2`} {
		eventually(t, want, func() bool { // a caller may learn of the end of a run before the server has recorded it
			_, metrics := c.send("GET", "/metrics", "")
			return strings.Contains(metrics, want)
		})
	}
	// The processes of runs and jobs outlive the server, and record what they do.
	for _, command := range []string{"sleep 1.5; echo done", "echo kept"} {
		if got := b.must("audit", "list", "--type", "execution.started", "--limit", "0"); !strings.Contains(got, command) {
			t.Errorf("%q is not in the audit log", command)
		}
	}
	if got := b.must("audit", "verify"); !strings.Contains(got, "unchanged") {
		t.Error(got)
	}
	for _, name := range []string{"a", "b", "kept", "bounds", "files"} {
		c.call("delete_sandbox", map[string]any{"identifier": name})
	}
	runsClient{t: t, s: c.s, namespace: "team"}.call("delete_sandbox", map[string]any{"identifier": "a"})
	c.s.stop(syscall.SIGTERM)
}

// runsEndpoint checks what is not a call of a tool, and that each route needs the token.
func runsEndpoint(c runsClient) {
	t := c.t
	for _, r := range []struct{ method, path string }{
		{"POST", "/mcp"}, {"GET", "/mcp"}, {"DELETE", "/mcp"}, {"GET", "/mcp/runs"}, {"GET", "/mcp/runs/x"}, {"DELETE", "/mcp/runs/x"},
		{"GET", "/mcp/events"}, {"GET", "/artifacts/a/latest/x"}, {"GET", "/v1/jobs"}, {"POST", "/v1/agents"},
	} {
		if resp, text := c.send(r.method, r.path, "", "Authorization", "Bearer x"); resp.StatusCode != 401 {
			t.Errorf("%s %s without the token: %d %s", r.method, r.path, resp.StatusCode, text)
		}
	}
	if v := c.get("GET", "/mcp", "", 200); v["mcp_path"] != "/mcp" {
		t.Errorf("%v", v)
	}
	c.get("DELETE", "/mcp", "", 204)
	c.get("OPTIONS", "/mcp", "", 204)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`: `"protocolVersion":"2025-11-25"`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                   `"result":{}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`: `"name":"run_sandbox"`,
	} {
		if resp, text := c.send("POST", "/mcp", body); resp.StatusCode != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %.300s", body, resp.StatusCode, text)
		}
	}
	// A client of MCP has a session and event streams.
	resp, text := c.send("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`,
		"Accept", "application/json, text/event-stream")
	session := resp.Header.Get("Mcp-Session-Id")
	if session == "" || !strings.HasPrefix(text, "event: message") {
		t.Fatalf("%v %s", resp.Header, text)
	}
	if _, text := c.send("POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo $((6*7))","egress":"none"}}}`,
		"Accept", "application/json, text/event-stream", "Mcp-Session-Id", session); !strings.Contains(text, "42") {
		t.Errorf("%s", text)
	}
}

// runsRun checks the results of runs, and the life of a sandbox.
func runsRun(c runsClient) {
	t := c.t
	first := c.run("a", nil, inShell("echo hello; echo oops >&2"), map[string]any{"argv": []string{"cat", "/etc/hostname"}}, map[string]any{"shell": "echo $A-$B", "env": []string{"B=2"}, "cwd": "/tmp"})
	if first["state"] != "completed" || command(first, 0)["stdout"] != "hello\n" || command(first, 0)["stderr"] != "oops\n" || command(first, 2)["stdout"] != "-2\n" || command(first, 2)["cwd"] != "/tmp" {
		t.Errorf("%v", first)
	}
	second := c.run("a", map[string]any{"default_env": map[string]string{"A": "1"}, "as_user": "root"}, inShell("echo $A; touch /kept; id -u"))
	if second["sandbox_container_id"] != first["sandbox_container_id"] || command(second, 0)["stdout"] != "1\n0\n" {
		t.Errorf("%v", second)
	}
	plain := c.run("a", map[string]any{"as_user": "sandbox"}, inShell("id -u; id -g; touch /workspace/w /artifacts/a && echo both; touch /etc/x 2>/dev/null || echo not there"))
	if command(plain, 0)["stdout"] != "1000\n1000\nboth\nnot there\n" {
		t.Errorf("as the user sandbox: %v", plain)
	}
	bad := c.run("a", nil, map[string]any{"shell": "exit 3", "allow_failure": true}, inShell("exit 4"), inShell("echo not reached"))
	if bad["state"] != "failed" || bad["error"] != "command 2 failed with exit 4" || command(bad, 2)["status"] != "queued" || command(bad, 1)["exit_code"] != 4.0 {
		t.Errorf("%v", bad)
	}
	on := c.run("a", map[string]any{"continue_on_error": true}, inShell("exit 5"), map[string]any{"argv": []string{"/no/such"}}, map[string]any{"shell": "sleep 60", "timeout_ms": 200}, inShell("echo reached"))
	if on["state"] != "failed" || command(on, 1)["exit_code"] != 127.0 || command(on, 2)["status"] != "timed_out" || command(on, 3)["stdout"] != "reached\n" {
		t.Errorf("%v", on)
	}
	made, failed := c.call("restart_sandbox", map[string]any{"identifier": "a", "options": map[string]any{"ttl_seconds": 600}})
	if failed != nil || made["sandbox"].(map[string]any)["container_id"] == first["sandbox_container_id"] {
		t.Errorf("%v %v", made, failed)
	}
	if r := c.run("a", nil, inShell("test ! -e /kept")); r["state"] != "completed" {
		t.Errorf("%v", r)
	}
	if r, failed := c.call("delete_sandbox", map[string]any{"identifier": "a"}); failed != nil || r["deleted"] != true {
		t.Errorf("%v %v", r, failed)
	}
	for _, w := range []struct {
		tool string
		args map[string]any
		code float64
	}{
		{"delete_sandbox", map[string]any{"identifier": "a"}, -32000},
		{"delete_sandbox", map[string]any{"identifier": "../a"}, -32602},
		{"run_sandbox", map[string]any{"identifier": "a"}, -32602},
		{"run_sandbox", map[string]any{"identifier": strings.Repeat("a", 37), "commands": []any{inShell("true")}}, -32602},
		{"run_sandbox", map[string]any{"identifier": "a", "commands": []any{inShell("true")}, "options": map[string]any{"egress": "open"}}, -32602},
		{"run_sandbox", map[string]any{"identifier": "a", "commands": []any{inShell("true")}, "options": map[string]any{"image": "/etc"}}, -32602},
	} {
		if r, failed := c.call(w.tool, w.args); failed["code"] != w.code {
			t.Errorf("%s %v: %v %v", w.tool, w.args, r, failed)
		}
	}
	started := c.run("b", map[string]any{"await_completion": false}, inShell("echo begin; sleep 60"), inShell("echo not reached"))
	id := started["run_id"].(string)
	c.events(id, 0, func(kind, _ string) bool { return kind == "command_stdout" })
	if r := c.get("DELETE", "/mcp/runs/"+id, "", 200); r["state"] != "canceled" || command(r, 0)["stdout"] != "begin\n" {
		t.Errorf("%v", r)
	}
	if v := c.get("GET", "/mcp/runs?limit=2", "", 200); len(v["runs"].([]any)) != 2 {
		t.Errorf("%v", v)
	}
	c.get("GET", "/mcp/runs/run-none", "", 404)
	if kinds, _ := c.events("none", 0, never); !slices.Equal(kinds, []string{"error"}) {
		t.Errorf("%v", kinds)
	}
}

// runsBounds checks a run whose commands write too much, and the events of one with many small writes.
func runsBounds(c runsClient) {
	t := c.t
	r := c.run("bounds", nil, inShell("head -c 3000000 /dev/zero | tr '\\0' x; printf 'a\\377b\\303' >&2; sleep 0.1; printf '\\251' >&2"), inShell("for i in $(seq 3000); do echo line $i; done"))
	first := command(r, 0)
	if r["state"] != "completed" || first["stdout_bytes"] != 3e6 || first["stdout_truncated"] != true || len(first["stdout"].(string)) != 1<<20 || first["stderr"] != "a\uFFFDbé" {
		t.Errorf("%v %v %d", r["state"], first["stdout_bytes"], len(first["stdout"].(string)))
	}
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := command(r, 1)["stdout"]; got != want.String() {
		t.Errorf("%d bytes of %d", len(got.(string)), want.Len())
	}
	kinds, _ := c.events(r["run_id"].(string), 0, never)
	if len(kinds) != 200 || kinds[199] != "run_finished" || kinds[198] != "artifacts_extracted" {
		t.Errorf("%d events are replayed, at last %v", len(kinds), kinds[max(len(kinds)-3, 0):])
	}
}

// runsArtifacts checks which files can be downloaded, and how.
func runsArtifacts(c runsClient) {
	t := c.t
	first := c.run("files", nil, inShell("cd /artifacts && mkdir -p d/e && echo one >d/e/f.txt && ln -s /etc/passwd link && ln -s / root && mkfifo pipe && echo '<script>1</script>' >p.html; exit 7"))
	var paths []string
	for _, a := range first["artifacts"].([]any) {
		paths = append(paths, a.(map[string]any)["path"].(string))
	}
	if first["state"] != "failed" || !slices.Equal(paths, []string{"d/e/f.txt", "p.html"}) {
		t.Errorf("%v", first)
	}
	id := first["run_id"].(string)
	c.run("files", nil, inShell("echo two >/artifacts/d/e/f.txt"))
	for path, want := range map[string]string{
		"/artifacts/files/" + id + "/d/e/f.txt": "one\n", "/artifacts/files/latest/d/e/f.txt": "two\n", "/artifacts/files/latest/p.html": "<script>1</script>\n",
	} {
		if resp, text := c.send("GET", path, ""); resp.StatusCode != 200 || text != want || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d %q", path, resp.StatusCode, text)
		}
	}
	if resp, text := c.send("GET", "/artifacts/files/latest/d/e/f.txt", "", "Range", "bytes=1-"); resp.StatusCode != 206 || text != "wo\n" {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	if v := c.get("GET", "/artifacts/files/latest/", "", 200); len(v["artifacts"].([]any)) != 2 {
		t.Errorf("%v", v)
	}
	for _, path := range []string{
		"/artifacts/files/latest/link", "/artifacts/files/latest/root/etc/passwd", "/artifacts/files/latest/pipe", "/artifacts/files/latest/d",
		"/artifacts/files/latest/..%2f..%2fjob.json", "/artifacts/files/latest/%2e%2e/job.json", "/artifacts/files/..%2f/x", "/artifacts/a/" + id + "/p.html", "/artifacts/none/latest/p.html",
	} {
		if resp, text := c.send("GET", path, ""); resp.StatusCode != 404 {
			t.Errorf("%s: %d %.100q", path, resp.StatusCode, text)
		}
	}
}

// runsNamespaces checks that callers of one namespace see nothing of another.
func runsNamespaces(b *box, c runsClient) {
	t := c.t
	team, other := runsClient{t, c.s, "team"}, runsClient{t, c.s, "other"}
	r := team.run("a", nil, inShell("echo secret >/artifacts/s; touch /theirs"))
	id := r["run_id"].(string)
	for _, path := range []string{"/mcp/runs/" + id, "/artifacts/a/" + id + "/s", "/artifacts/a/latest/s"} {
		team.get("GET", path, "", 200)
		other.get("GET", path, "", 404)
	}
	other.get("DELETE", "/mcp/runs/"+id, "", 404)
	if v := other.get("GET", "/mcp/runs", "", 200); len(v["runs"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
	if _, failed := other.call("delete_sandbox", map[string]any{"identifier": "a"}); failed == nil {
		t.Error("the sandbox of another namespace was deleted")
	}
	if r, _ := other.call("sandbox_list", nil); r != nil && len(r["sandboxes"].([]any)) != 0 {
		t.Errorf("%v", r)
	}
	if _, text := other.send("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_exec","arguments":{"sandbox_id":"`+r["sandbox_container_id"].(string)+`","command":"id"}}}`); !strings.Contains(text, "no such sandbox") {
		t.Errorf("%s", text)
	}
	// The host's paths are not theirs to know.
	_, text := team.send("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo result >f","egress":"none"}}}`)
	at := regexp.MustCompile(`"output_dir":"(demesne://outputs/[^"/]+)"`).FindStringSubmatch(text)
	if at == nil || strings.Contains(text, b.dir) {
		t.Fatalf("%s", text)
	}
	if r, _ := team.call("sandbox_script", map[string]any{"command": "cat /in/f", "egress": "none", "files": []string{at[1] + "/f"}}); r["stdout"] != "result\n" {
		t.Errorf("%v", r)
	}
	for _, who := range []runsClient{other, team} {
		for _, path := range []string{at[1] + "/f", "/etc/passwd", "/etc/none"} {
			body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": "sandbox_script", "arguments": map[string]any{"command": "x", "files": []string{path}}}})
			if _, text := who.send("POST", "/mcp", string(body)); (who != team || path[0] == '/') && !strings.Contains(text, "is not within DEMESNE_ALLOWED_PATHS") {
				t.Errorf("%s %s: %s", who.namespace, path, text)
			}
		}
	}
	job := team.get("POST", "/v1/jobs", `{"command":"echo theirs; mkdir d; echo kept > d/f; ln -s /etc/passwd link; mkfifo pipe; ln -s d e"}`, 201)["id"].(string)
	left := "/v1/outputs/" + team.get("POST", "/v1/jobs/"+job+"/wait", "", 200)["run"].(string)
	runsOutputs(team, left)
	for _, who := range []runsClient{other, c} {
		who.get("GET", left, "", 404)
		who.get("GET", left+"/raw?path=d/f", "", 404)
		who.get("GET", "/v1/jobs/"+job, "", 404)
		who.get("GET", "/v1/jobs/"+job+"/stdout", "", 404)
		who.get("POST", "/v1/jobs/"+job+"/cancel", "", 404)
	}
	// The processes of runs and jobs report what they do.
	seen := ""
	reported := fixture.Poll(patience, func() bool {
		seen = ""
		for _, line := range strings.Split(b.demesne("audit", "list").stdout, "\n") {
			if strings.Contains(line, "execution.started") && strings.Contains(line, " team ") {
				seen += line + "\n"
			}
		}
		return strings.Contains(seen, "/theirs") && strings.Contains(seen, "echo theirs")
	})
	if !reported {
		t.Errorf("the audit log has %s", seen)
	}
}

// runsOutputs checks the files that a job left: d/f, a link to a file of the host, a pipe, and a link to d.
func runsOutputs(c runsClient, left string) {
	t := c.t
	if list := c.get("GET", left, "", 200)["items"].([]any); len(list) != 1 || list[0].(map[string]any)["path"] != "d/f" || list[0].(map[string]any)["size"] != 5.0 {
		t.Errorf("%v", list)
	}
	if _, text := c.send("GET", left+"/raw?path=d/f", ""); text != "kept\n" {
		t.Errorf("%q", text)
	}
	for _, path := range []string{"link", "pipe", "e/f", "d", ".", "/etc/passwd", "../x", "d/../../x", "none", "d%2ff%00"} {
		c.get("GET", left+"/raw?path="+path, "", 404)
	}
	for _, run := range []string{"..", "%2e%2e", ".manifests", "no"} {
		if r, text := c.send("GET", "/v1/outputs/"+run, ""); r.StatusCode < 300 {
			t.Errorf("%s: %d %s", run, r.StatusCode, text)
		}
	}
}

// runsJobs checks jobs of /v1, and the errors of agents on a machine without any.
func runsJobs(c runsClient) {
	t := c.t
	j := c.get("POST", "/v1/jobs", `{"argv":["sh","-c","echo \"$1\"; echo err >&2; exit 3","x","a b'c"],"env":{"A":"1"},"cwd":"/tmp"}`, 201)
	id := j["id"].(string)
	j = c.get("POST", "/v1/jobs/"+id+"/wait?timeout_ms=300000", "", 200)
	if j["status"] != "failed" || j["exit_code"] != 3.0 || j["stdout"].(map[string]any)["text"] != "a b'c\n" {
		t.Errorf("%v", j)
	}
	if _, text := c.send("GET", "/v1/jobs/"+id+"/stderr", ""); text != "err\n" {
		t.Errorf("%q", text)
	}
	long := c.get("POST", "/v1/jobs", `{"command":"echo on; sleep 60"}`, 201)["id"].(string)
	if j := c.get("POST", "/v1/jobs/"+long+"/wait?timeout_ms=50", "", 200); j["status"] != "running" {
		t.Errorf("%v", j)
	}
	for range 2 {
		if j := c.get("POST", "/v1/jobs/"+long+"/cancel", "", 200); j["status"] != "cancelled" {
			t.Errorf("%v", j)
		}
	}
	list := c.get("GET", "/v1/jobs", "", 200)["items"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["id"] != long || strings.Contains(fmt.Sprint(list), "/out/") {
		t.Errorf("%v", list)
	}
	for body, want := range map[string]int{`{}`: 422, `{"command":"x","argv":["x"]}`: 422, `{"command":"x","network":{"mode":"open"}}`: 400, `{"command":"x","image":"/etc"}`: 400, `{"command":"x","network":{"ask":true}}`: 422, `{"command":"x","other":1}`: 422} {
		c.get("POST", "/v1/jobs", body, want)
	}
	c.get("POST", "/v1/agents", `{"prompt":"x"}`, 400)
	c.get("GET", "/v1/agents/"+id+"/trace", "", 404)
	if v := c.get("GET", "/v1/agents", "", 200); len(v["items"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
}

// runsWire checks what programs for mcp-sandboxd read: the answer of a run that goes on, runs that take turns, the events of
// one that fails, and what is not a call.
func runsWire(c runsClient) {
	t := c.t
	options := map[string]any{"egress": "none", "lock_sandbox": true}
	first, _ := c.call("run_sandbox", map[string]any{"identifier": "wire", "commands": []any{inShell("echo a >> /log; sleep 0.5; echo b >> /log")}, "options": options})
	for _, field := range []string{"tool", "run_id", "events_url", "status_url", "identifier", "sandbox_name"} {
		if _, ok := first[field].(string); !ok {
			t.Errorf("%s of %v", field, first)
		}
	}
	if final, ok := first["final"]; !ok || final != nil || first["events_url"] != "/mcp/events?run_id="+first["run_id"].(string) || first["status_url"] != "/mcp/runs/"+first["run_id"].(string) {
		t.Errorf("%v", first)
	}
	second := c.run("wire", map[string]any{"lock_sandbox": true}, inShell("cat /log; exit 4"))
	if command(second, 0)["stdout"] != "a\nb\n" || second["state"] != "failed" {
		t.Errorf("the second run did not wait: %v", second)
	}
	kinds, _ := c.events(second["run_id"].(string), 0, never)
	if !slices.Equal(kinds, []string{"run_started", "command_started", "command_stdout", "command_finished", "artifacts_extracted", "run_failed"}) {
		t.Errorf("%q", kinds)
	}
	if resp, text := c.send("POST", "/mcp", "nonsense"); resp.StatusCode != 400 || !strings.Contains(text, `"code":-32700`) {
		t.Errorf("no JSON: %d %s", resp.StatusCode, text)
	}
	for _, path := range []string{"/mcp/runs", "/mcp/events", "/artifacts/a/latest/b"} {
		if resp, text := c.send("OPTIONS", path, ""); resp.StatusCode != 204 {
			t.Errorf("OPTIONS %s: %d %s", path, resp.StatusCode, text)
		}
	}
	c.call("delete_sandbox", map[string]any{"identifier": "wire"})
}
