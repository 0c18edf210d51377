package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tenant is a caller of the API with a token.
type tenant struct {
	t          testing.TB
	url, token string
}

// send sends a request, and returns the status and the first part of the answer: some go on for ever.
func (c tenant) send(method, path, body string, headers ...string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", c.token)
	if req.Header.Set("Content-Type", "application/json"); strings.HasSuffix(path, "raw?path=a") {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	done := make(chan struct{})
	go func() { defer close(done); io.Copy(&text, io.LimitReader(resp.Body, 1<<20)) }()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		time.AfterFunc(500*time.Millisecond, func() { resp.Body.Close() })
	}
	<-done
	return resp.StatusCode, text.String()
}

// get sends a request that must succeed, and decodes the answer.
func (c tenant) get(method, path, body string) (v map[string]any) {
	c.t.Helper()
	status, text := c.send(method, path, body)
	if status >= 300 || text != "" && json.Unmarshal([]byte(text), &v) != nil && text[0] == '{' {
		c.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return v
}

// tool calls an MCP tool, and returns its text and whether it failed.
func (c tenant) tool(name string, arguments map[string]any) (text string, failed bool) {
	c.t.Helper()
	body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments}})
	_, answer := c.send("POST", "/mcp", string(body), "Accept: application/json")
	var r struct {
		Error  json.RawMessage
		Result struct {
			IsError bool
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		c.t.Fatalf("%s: %v %s", name, err, answer)
	}
	for _, part := range r.Result.Content {
		text += part.Text
	}
	return text + string(r.Error), r.Result.IsError || r.Error != nil
}

// tenants starts a server with two namespaces.
func (b *box) tenants(args ...string) (s *apiServer, alice, bob tenant) {
	b.Helper()
	s = b.serveAPI(args...)
	token := func(name string) tenant {
		return tenant{b, s.url, strings.TrimSpace(b.cli("serve", "token", "add", name))}
	}
	return s, token("alice"), token("bob")
}

// operation is a route of the OpenAPI document with a valid request.
type operation struct{ method, path, body string }

// operations returns the routes of /v1. The parameters of a path are left in it.
func operations(t testing.TB, c tenant) (all []operation) {
	var d struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Required bool
			}
			RequestBody struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	_, text := c.send("GET", "/v1/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.Paths {
		for method, o := range methods {
			op := operation{strings.ToUpper(method), path, ""}
			for _, p := range o.Parameters {
				if p.In == "query" && p.Required {
					op.path += "?" + p.Name + "=a"
				}
			}
			if c, ok := o.RequestBody.Content["application/json"]; ok {
				op.body = string(must(json.Marshal(sample(d.Components.Schemas, c.Schema, 0))))
			}
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

// sample returns a value that a schema allows, with its required fields.
func sample(known map[string]map[string]any, schema map[string]any, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		return sample(known, known[ref[strings.LastIndexByte(ref, '/')+1:]], depth+1)
	}
	if words, ok := schema["enum"].([]any); ok {
		return words[0]
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "string":
		return "a"
	case "integer", "number":
		n, _ := schema["minimum"].(float64)
		return max(n, 1)
	case "boolean":
		return false
	case "array":
		items, _ := schema["items"].(map[string]any)
		return []any{sample(known, items, depth+1)}
	}
	v := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if p, ok := properties[name.(string)].(map[string]any); ok && depth < 8 {
			v[name.(string)] = sample(known, p, depth+1)
		}
	}
	return v
}

// TestServeRemoved checks that a sandbox that has ended is not found, by any API, also after a removal by another API. Its receipt stays.
func TestServeRemoved(t *testing.T) {
	b := newBox(t)
	s, alice, _ := b.tenants("--egress", "none")
	operator := tenant{t, s.url, s.key}
	for _, c := range []tenant{operator, alice} {
		gone := func(what string, paths ...string) {
			t.Helper()
			for _, path := range paths {
				if status, text := c.send("GET", path, ""); status != http.StatusNotFound {
					t.Errorf("%s: %s: %d %.200s", what, path, status, text)
				}
			}
		}
		id := c.get("POST", "/v1/sandboxes", `{}`)["id"].(string)
		c.get("DELETE", "/v1/sandboxes/"+id, "")
		gone("removed", "/v1/sandboxes/"+id, "/v1/sandboxes/"+id+"/usage", "/v1/sandboxes/"+id+"/files/raw?path=/etc/passwd")
		ran := c.get("POST", "/v1/run", `{"command": "true"}`)["sandbox"].(string)
		gone("a run that ended", "/v1/sandboxes/"+ran)
		if status, text := c.send("GET", "/v1/sandboxes/"+ran+"/receipt", ""); status != http.StatusOK || !strings.Contains(text, `"level"`) {
			t.Errorf("the receipt of a run: %d %.200s", status, text)
		}
		e2b := c.get("POST", "/v2/sandboxes", `{}`)["sandboxID"].(string)
		c.get("GET", "/sandboxes/"+e2b, "")
		c.get("DELETE", "/v1/sandboxes/e2b-"+e2b, "")
		gone("removed by another API", "/sandboxes/"+e2b, "/v1/sandboxes/e2b-"+e2b)
		if _, text := c.send("GET", "/v2/sandboxes", ""); strings.Contains(text, e2b) {
			t.Errorf("a removed sandbox is listed: %s", text)
		}
		c.get("DELETE", "/sandboxes/"+e2b, "") // its record
		e2b = c.get("POST", "/v2/sandboxes", `{}`)["sandboxID"].(string)
		c.get("DELETE", "/sandboxes/"+e2b, "")
		gone("removed by E2B's API", "/sandboxes/"+e2b)
	}
}

// TestServeNamespaces gives one caller a sandbox, a job, a run, a secret, a volume, a snapshot and more, and lets the other
// one try every route and tool with their names.
func TestServeNamespaces(t *testing.T) {
	s := newBox(t)
	s.keepsJobs()
	api, alice, bob := s.tenants("--tools", "files,sandboxes,code,runs")
	sandbox := alice.get("POST", "/v1/sandboxes", `{"name": "hers"}`)
	id := sandbox["id"].(string)
	alice.get("POST", "/v1/sandboxes/hers/files/write", `{"path": "/workspace/note", "content": "of-alice"}`)
	job := alice.get("POST", "/v1/jobs", `{"command": "echo of-alice; sleep 1000"}`)["id"].(string)
	e2b := alice.get("POST", "/v2/sandboxes", `{"metadata": {"who": "of-alice"}}`)
	hers := e2b["sandboxID"].(string)
	secret := alice.get("POST", "/secrets", `{"name": "OFALICE", "value": "value-of-alice"}`)["secretID"].(string)
	volume := alice.get("POST", "/volumes", `{"name": "of-alice"}`)["volumeID"].(string)
	snapshot := alice.get("POST", "/sandboxes/"+hers+"/snapshots", `{"name": "of-alice"}`)["snapshotID"].(string)
	ran, failed := alice.tool("run_sandbox", map[string]any{"identifier": "of-alice", "commands": []any{map[string]any{"shell": "echo of-alice > /artifacts/made"}},
		"options": map[string]any{"await_completion": true, "await_timeout_ms": 60000, "egress": "none"}})
	if failed {
		t.Fatal(ran)
	}
	run := between(ran, `"run_id": "`, `"`)
	if run == "" {
		t.Fatalf("no run in %s", ran)
	}

	names := []string{id, "hers", "hers@alice", hers, "e2b-" + hers, "e2b-" + hers + "@alice", job, run, snapshot}
	clean := func(what string, status int, text string) {
		t.Helper()
		for _, word := range append(slices.Clone(names[:1]), hers, job, run, snapshot, secret, volume, "of-alice", "OFALICE") {
			if strings.Contains(text, word) && !strings.Contains(what, word) {
				t.Errorf("%s: %d shows %q: %.300s", what, status, word, text)
			}
		}
	}
	tried := 0
	for _, op := range operations(t, alice) {
		paths := []string{op.path}
		for _, parameter := range []string{"{id}", "{question}", "{port}", "{stream}"} {
			with := map[string][]string{"{id}": names, "{question}": {"a"}, "{port}": {"80"}, "{stream}": {"stdout"}}[parameter]
			var next []string
			for _, p := range paths {
				if !strings.Contains(p, parameter) {
					next = append(next, p)
					continue
				}
				for _, value := range with {
					next = append(next, strings.Replace(p, parameter, value, 1))
				}
			}
			paths = next
		}
		if !strings.Contains(op.path, "{") && op.method != "GET" {
			continue // it makes something of Bob's own
		}
		for _, path := range paths {
			tried++
			if strings.Contains(path, "/exec") {
				op.body = `{"command": "cat /workspace/note"}`
			}
			status, text := bob.send(op.method, path, op.body)
			what := op.method + " " + path
			clean(what, status, text)
			if strings.Contains(op.path, "{") && status != http.StatusNotFound {
				t.Errorf("%s: %d %.200s", what, status, text)
			}
		}
	}
	for _, r := range []operation{
		{"GET", "/sandboxes/" + hers, ""}, {"DELETE", "/sandboxes/" + hers, ""}, {"POST", "/sandboxes/" + hers + "/connect", "{}"}, {"POST", "/sandboxes/" + hers + "/pause", "{}"},
		{"POST", "/sandboxes/" + hers + "/timeout", `{"timeout":1}`}, {"POST", "/sandboxes/" + hers + "/fork", "{}"}, {"POST", "/sandboxes/" + hers + "/snapshots", "{}"},
		{"PUT", "/sandboxes/" + hers + "/network", "{}"}, {"GET", "/sandboxes/" + hers + "/logs", ""}, {"GET", "/sandboxes/" + hers + "/metrics", ""},
		{"GET", "/secrets/" + secret, ""}, {"GET", "/secrets/OFALICE", ""}, {"DELETE", "/secrets/" + secret, ""}, {"POST", "/secrets/" + secret, `{"value":"x"}`},
		{"GET", "/volumes/" + volume, ""}, {"DELETE", "/volumes/of-alice", ""}, {"DELETE", "/templates/" + snapshot, ""}, {"GET", "/mcp/runs/" + run, ""}, {"DELETE", "/mcp/runs/" + run, ""},
		{"GET", "/mcp/events?run_id=" + run, ""}, {"GET", "/artifacts/of-alice/" + run + "/made", ""}, {"GET", "/artifacts/of-alice/latest/made", ""},
	} {
		tried++
		status, text := bob.send(r.method, r.path, r.body)
		clean(r.method+" "+r.path, status, text)
		if status != http.StatusNotFound && !strings.Contains(text, "run not found") { // an event stream says so in an event
			t.Errorf("%s %s: %d %.200s", r.method, r.path, status, text)
		}
	}
	for _, path := range []string{"/v2/sandboxes", "/sandboxes", "/snapshots", "/secrets", "/volumes", "/templates", "/mcp/runs", "/v1/events", "/v1/audit", "/v1/audit/verify", "/metrics", "/sandboxes/metrics?sandbox_ids=" + hers} {
		tried++
		status, text := bob.send("GET", path, "")
		clean("GET "+path, status, text)
	}
	for _, body := range []string{`{"templateID": "` + snapshot + `"}`, `{"templateID": "of-alice"}`, `{"templateID": "base", "volumeMounts": [{"name": "of-alice", "path": "/v"}]}`} {
		if status, text := bob.send("POST", "/v2/sandboxes", body); status < 400 {
			t.Errorf("create %s: %d %s", body, status, text)
		}
	}
	// The tokens of a sandbox are that sandbox's.
	envd := []string{"E2b-Sandbox-Port: 49983", "X-Access-Token: " + e2b["envdAccessToken"].(string)}
	if status, text := bob.send("GET", "/files?path=/etc/hostname", "", append(envd, "E2b-Sandbox-Id: "+hers)...); status != http.StatusOK {
		t.Errorf("the sandbox's own token: %d %s", status, text)
	}
	mine := bob.get("POST", "/v2/sandboxes", "{}")["sandboxID"].(string)
	if status, text := bob.send("GET", "/files?path=/etc/hostname", "", append(envd, "E2b-Sandbox-Id: "+mine)...); status != http.StatusUnauthorized {
		t.Errorf("another sandbox's token: %d %s", status, text)
	}
	tried += s.foreignTools(bob, clean, names, job, run)
	t.Logf("%d requests", tried)

	// None had an effect.
	if status, text := alice.send("POST", "/v1/sandboxes/hers/files/read", `{"path": "/workspace/note"}`); status != 200 || !strings.Contains(text, "of-alice") {
		t.Errorf("the first caller's file: %d %s", status, text)
	}
	for _, path := range []string{"/v1/sandboxes/" + id, "/sandboxes/" + hers, "/secrets/" + secret, "/volumes/" + volume, "/v1/jobs/" + job, "/mcp/runs/" + run, "/artifacts/of-alice/latest/made"} {
		if status, text := alice.send("GET", path, ""); status != 200 {
			t.Errorf("%s of the first caller: %d %s", path, status, text)
		}
	}
	if status, text := alice.send("GET", "/v1/jobs/"+job, ""); status != 200 || !strings.Contains(text, `"running"`) {
		t.Errorf("the first caller's job: %d %s", status, text)
	}
	// The operator sees all. Names of two namespaces do not collide.
	bob.get("POST", "/v1/sandboxes", `{"name": "hers"}`)
	operator := tenant{t, api.url, api.key}
	for _, name := range []string{"hers@alice", "hers@bob"} {
		operator.get("GET", "/v1/sandboxes/"+name, "")
	}
	alice.get("POST", "/v1/jobs/"+job+"/cancel", "")

	api.stop(syscall.SIGKILL) // what was apart stays apart
	again := s.serveAPI()
	alice.url, bob.url = again.url, again.url
	for _, path := range []string{"/v1/sandboxes/" + id, "/sandboxes/" + hers, "/secrets/" + secret, "/v1/jobs/" + job, "/mcp/runs/" + run} {
		if status, _ := bob.send("GET", path, ""); status != http.StatusNotFound {
			t.Errorf("%s after a restart: %d", path, status)
		}
		if status, text := alice.send("GET", path, ""); status != http.StatusOK {
			t.Errorf("%s of the first caller after a restart: %d %s", path, status, text)
		}
	}
	operator.url = again.url
	for _, sandbox := range operator.get("GET", "/v1/sandboxes", "")["items"].([]any) {
		operator.get("DELETE", "/v1/sandboxes/"+sandbox.(map[string]any)["id"].(string), "")
	}
	s.cli("serve", "token", "rm", "alice")
	if status, _ := alice.send("GET", "/v1/sandboxes", ""); status != http.StatusUnauthorized {
		t.Errorf("a removed token: %d\n%s", status, s.cli("serve", "token", "list"))
	}
}

// foreignTools calls every tool that takes a sandbox, a job, a session or a run with another caller's.
func (b *box) foreignTools(c tenant, clean func(string, int, string), names []string, job, run string) (tried int) {
	b.Helper()
	_, text := c.send("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Accept: application/json")
	var r struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Result.Tools) < 20 {
		b.Fatalf("%v %.300s", err, text)
	}
	for _, tool := range r.Result.Tools {
		args, _ := sample(nil, tool.InputSchema, 0).(map[string]any)
		for _, path := range []string{"path", "src", "dst"} {
			if _, ok := args[path]; ok {
				args[path] = "/workspace/note"
			}
		}
		properties, _ := tool.InputSchema["properties"].(map[string]any)
		for field, values := range map[string][]string{"sandbox_id": names, "to_sandbox_id": names, "job_id": {job, run}, "session_id": names[:2]} {
			if _, ok := properties[field]; !ok || tool.Name == "execute_code" || tool.Name == "validate_code" {
				continue
			}
			for _, value := range values {
				tried++
				with := maps.Clone(args)
				if _, ok := with["command"]; ok || tool.Name == "sandbox_exec" {
					with["command"] = "cat /workspace/note"
				}
				with[field] = value
				text, failed := c.tool(tool.Name, with)
				what := fmt.Sprintf("%s %v", tool.Name, with)
				clean(what, 0, text)
				if !failed {
					b.Errorf("%s: %.200s", what, text)
				}
			}
		}
	}
	if text, failed := c.tool("sandbox_list", nil); failed {
		b.Errorf("sandbox_list: %s", text)
	} else {
		clean("sandbox_list", 0, text)
	}
	return tried
}

// between returns the part of s between two texts, or "".
func between(s, before, after string) string {
	_, s, _ = strings.Cut(s, before)
	s, _, found := strings.Cut(s, after)
	if !found {
		return ""
	}
	return s
}
