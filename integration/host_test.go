package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// hostPolicy writes a policy of host commands, and a program that prints its arguments.
func (b *box) hostPolicy(text string) string {
	b.Helper()
	b.file("programs/show", "#!/bin/sh\nprintf '[%s]' \"$@\"\n", 0o755)
	path := b.file("host.toml", fmt.Sprintf("path = [%q, \"/usr/bin\", \"/bin\"]\n%s", b.dir+"/programs", text), 0o600)
	if b.uid >= 0 {
		os.Chown(path, b.uid, b.uid)
	}
	return path
}

// approve approves a request on a terminal, as a person does.
func (b *box) approve(id string, shown ...string) {
	b.Helper()
	term := b.terminal("approve", id)
	for _, text := range append(shown, "let it happen? [y/N] ") {
		term.expect(text)
	}
	term.typ("y\n")
	if code := term.wait(); code != 0 {
		b.Errorf("approve: exit %d\n%s", code, term.screen())
	}
}

// pending is one request of demesne approve list --json.
type pending struct {
	Request struct {
		ID, Problem string
		Argv        []string
	}
	State, Why string
}

func (b *box) requests() (all []pending) {
	b.Helper()
	r := b.demesne("approve", "list", "--all", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
		b.Fatalf("%v: %+v", err, r)
	}
	return all
}

// TestEscapeM14HostCommands checks the tools of the set "host" from a client's request to the program on this machine: the
// operator's list runs at once, the rest only after a person at a terminal said yes, and no tool or program without that
// terminal decides (M14).
func TestEscapeM14HostCommands(t *testing.T) {
	b := newBox(t)
	policy := b.hostPolicy(`allow = ["show *", ["show", "$(reboot); x"]]` + "\nread = [\"" + b.mkdir("data") + "\"]")
	b.file("data/a.txt", "from the host\n", 0o644)
	b.extra = append(b.extra, "DEMESNE_TOOLS=host", "DEMESNE_HOST_POLICY="+policy, "DEMESNE_ALLOWED_PATHS="+b.mkdir("allowed"))
	m := b.mcp()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(m.ask("tools/list", args{}).Result, &list); err != nil || len(list.Tools) < 20 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, tool := range list.Tools {
		for _, word := range []string{"approve", "allow", "grant", "decide"} {
			if strings.Contains(tool.Name, word) {
				t.Errorf("tool %s", tool.Name)
			}
		}
	}
	r := m.must("host_exec", args{"argv": []string{"show", "$(reboot); x"}})
	if got := r.field("stdout"); got != "[$(reboot); x]" || r.field("status") != "done" {
		t.Errorf("%+v", r)
	}
	if r := m.call("host_exec", args{"command": "show x; reboot"}); !r.IsError || !strings.Contains(r.Text, "no shell") {
		t.Errorf("%+v", r)
	}
	if r := m.call("host_exec", args{"argv": []string{bin + "/demesne", "approve", "x"}}); !r.IsError {
		t.Errorf("%+v", r)
	}
	r = m.must("host_exec", args{"command": "sh -c 'tty </dev/tty; env; demesne approve x; exit 3'", "reason": "an experiment", "wait_seconds": 0})
	id := r.field("request_id")
	if r.field("status") != "pending" || id == "" {
		t.Fatalf("%+v", r)
	}
	if r := b.demesne("approve", id); r.code != 1 || !strings.Contains(r.stderr, "no terminal") {
		t.Errorf("without a terminal: %+v", r)
	}
	b.approve(id, `wants to   sh -c "tty </dev/tty; env; demesne approve x; exit 3"`, "MCP", `it says    "an experiment"`)
	r = m.must("host_exec", args{"request_id": id})
	if r.Fields["exit_code"] != float64(3) || strings.Contains(r.Text, canary) || !strings.Contains(r.field("stderr"), "/dev/tty") {
		t.Errorf("%+v", r)
	}
	if again := m.must("host_exec", args{"request_id": id}); again.field("stdout") != r.field("stdout") {
		t.Errorf("another result: %+v", again)
	}
	sandbox := m.must("sandbox_create", nil).field("sandbox_id")
	m.must("host_file_copy", args{"path": b.dir + "/data", "sandbox_id": sandbox, "dst": "/workspace/data"})
	r = m.must("sandbox_exec", args{"sandbox_id": sandbox, "command": "cat /workspace/data/a.txt; ls ~/.demesne/host 2>&1; echo $DEMESNE_HOST_POLICY"})
	if out := r.field("stdout"); !strings.HasPrefix(out, "from the host\n") || !strings.Contains(out, "No such file") {
		t.Errorf("%+v", r)
	}
	r = m.must("host_file_read", args{"path": b.home + "/.demesne/host/lock", "wait_seconds": 0})
	term := b.terminal("approve", r.field("request_id"))
	term.expect("it cannot be approved")
	term.typ("y\n")
	if term.wait() == 0 {
		t.Error("demesne's own file was approved")
	}
	waiting := m.must("host_exec", args{"argv": []string{"show", "later", "on"}, "wait_seconds": 0}).field("request_id")
	m.must("sandbox_destroy", args{"sandbox_id": sandbox})
	m.cmd.Process.Kill()
	m.wait() // its stdout may end before its lock does
	for _, p := range b.requests() {
		if p.Request.ID == waiting && p.State != "lost" {
			t.Errorf("after the server's end: %+v", p)
		}
	}
	logged := ""
	for _, name := range names(b.home + "/.demesne/audit") {
		text, err := os.ReadFile(b.home + "/.demesne/audit/" + name)
		if err != nil {
			t.Fatal(err)
		}
		logged += string(text)
	}
	for _, kind := range []string{"host.requested", "host.approved", "host.denied", "host.started", "host.completed"} {
		if !strings.Contains(logged, kind) {
			t.Errorf("no %s in the audit log", kind)
		}
	}
	b.hostPolicy(`allow = ["*"]`)
	if r := b.finish(b.command("demesne-mcp")); r.code != 1 || !strings.Contains(r.stderr, "matches any command") {
		t.Errorf("%+v", r)
	}
	b.extra = append(b.extra, "DEMESNE_HOST_POLICY=none")
	if r := b.finish(b.command("demesne-mcp")); r.code != 1 || !strings.Contains(r.stderr, "not offered here") {
		t.Errorf("%+v", r)
	}
}

// hostAPI sends a request and returns the status and the answer.
func (s *apiServer) hostAPI(b *box, method, path, namespace string, body any) (int, map[string]any) {
	b.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(text))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if call, ok := body.(args); ok && path == "/mcp" {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", call["params"].(args)["name"].(string))
	}
	if namespace != "" {
		req.Header.Set("Demesne-Namespace", namespace)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	if at := bytes.Index(raw, []byte("data: {")); at >= 0 { // MCP's stream
		raw, _, _ = bytes.Cut(raw[at+len("data: "):], []byte("\n"))
	}
	answer := map[string]any{}
	json.Unmarshal(raw, &answer)
	return resp.StatusCode, answer
}

// TestEscapeM14HostServe checks host commands of demesne serve: off without a policy, by REST and MCP with one, apart for
// namespaces, and decided only by the operator (M14).
func TestEscapeM14HostServe(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	policy := b.hostPolicy("allow = [\"show *\"]\n[namespace.ci]\n")
	off := b.serveAPI()
	if code, _ := off.hostAPI(b, "POST", "/v1/host/exec", "", args{"argv": []string{"uname"}}); code != 404 {
		t.Errorf("without a policy: %d", code)
	}
	off.stop(syscall.SIGTERM)
	api := b.serveAPI("--host-policy", policy)
	code, a := api.hostAPI(b, "POST", "/v1/host/exec", "", args{"argv": []string{"show", "a b"}})
	if code != 200 || a["stdout"] != "[a b]" {
		t.Errorf("%d %v", code, a)
	}
	_, a = api.hostAPI(b, "POST", "/v1/host/exec", "ci", args{"argv": []string{"show", "a b"}}) // the rule is not ci's
	id, _ := a["id"].(string)
	if a["state"] != "pending" || id == "" {
		t.Fatalf("%v", a)
	}
	if code, _ := api.hostAPI(b, "POST", "/v1/host/exec", "other", args{"argv": []string{"uname"}}); code != 403 {
		t.Errorf("a namespace without a table: %d", code)
	}
	_, list := api.hostAPI(b, "GET", "/v1/host/requests?state=pending", "", nil)
	items := list["items"].([]any)
	digest := items[0].(map[string]any)["digest"].(string)
	at := "/v1/host/requests/" + id
	for name, c := range map[string]struct {
		namespace, digest string
		want              int
	}{"its own caller": {"ci", digest, 403}, "another namespace": {"other", digest, 403}, "another digest": {"", "00", 409}} {
		if code, a := api.hostAPI(b, "POST", at+"/approve", c.namespace, args{"digest": c.digest}); code != c.want {
			t.Errorf("%s: %d %v", name, code, a)
		}
	}
	if code, _ := api.hostAPI(b, "GET", at, "", nil); code != 404 {
		t.Errorf("the result of another namespace: %d", code)
	}
	if code, a := api.hostAPI(b, "POST", at+"/approve", "", args{"digest": digest}); code != 204 {
		t.Errorf("%d %v", code, a)
	}
	if code, a := api.hostAPI(b, "GET", at+"?wait_seconds=10", "ci", nil); code != 200 || a["stdout"] != "[a b]" {
		t.Errorf("%d %v", code, a)
	}
	tool := func(namespace, name string, a args) string {
		_, got := api.hostAPI(b, "POST", "/mcp", namespace, args{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": args{"name": name, "arguments": a,
			"_meta": args{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": args{"name": "t", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": args{}}}})
		return fmt.Sprint(got)
	}
	if got := tool("", "host_exec", args{"argv": []string{"show", "y"}}); !strings.Contains(got, "[y]") {
		t.Errorf("%s", got)
	}
	if got := tool("ci", "host_exec", args{"argv": []string{"show", "z"}, "wait_seconds": 0}); !strings.Contains(got, "pending") {
		t.Errorf("%s", got)
	}
	if got := tool("other", "host_exec", args{"argv": []string{"show", "z"}}); !strings.Contains(got, "off for this caller") {
		t.Errorf("%s", got)
	}
	if code, _ := api.hostAPI(b, "GET", "/v1/audit?type=host", "", nil); code != 200 {
		t.Errorf("audit: %d", code)
	}
	b.hostPolicy("http_approval = false")
	api.stop(syscall.SIGTERM)
	api = b.serveAPI("--host-policy", policy)
	_, a = api.hostAPI(b, "POST", "/v1/host/exec", "", args{"argv": []string{"show", "x"}})
	_, list = api.hostAPI(b, "GET", "/v1/host/requests?state=pending", "", nil)
	digest = list["items"].([]any)[0].(map[string]any)["digest"].(string)
	at = "/v1/host/requests/" + a["id"].(string)
	if code, _ := api.hostAPI(b, "POST", at+"/approve", "", args{"digest": digest}); code != 403 {
		t.Errorf("http_approval = false: %d", code)
	}
	b.approve(a["id"].(string), "wants to   show x")
	if _, a := api.hostAPI(b, "GET", at+"?wait_seconds=10", "", nil); a["stdout"] != "[x]" {
		t.Errorf("%v", a)
	}
	api.stop(syscall.SIGTERM)
}

// TestEscapeM14HostFaces tries to approve as a model would that has everything but the operator's token: the token of a
// namespace and a sandbox of its own, MCP, E2B's API, and the cookie that a browser sends to a sandbox's published port. An
// approval counts once, for what was shown (M14).
func TestEscapeM14HostFaces(t *testing.T) {
	b := newBox(t)
	policy := b.hostPolicy("[namespace.alice]\n")
	api, alice, _ := b.tenants("--host-policy", policy)
	ask := func() (at, digest string) {
		t.Helper()
		_, a := api.hostAPI(b, "POST", "/v1/host/exec", "alice", args{"argv": []string{"show", strings.ToLower(rand.Text())}})
		_, list := api.hostAPI(b, "GET", "/v1/host/requests?state=pending", "", nil)
		for _, item := range list["items"].([]any) {
			if r := item.(map[string]any); r["id"] == a["id"] {
				return "/v1/host/requests/" + r["id"].(string), r["digest"].(string)
			}
		}
		t.Fatalf("%v %v", a, list)
		return "", ""
	}
	at, digest := ask()
	body := `{"digest":"` + digest + `"}`
	try := func(name, method, path, body string, headers ...string) {
		t.Helper()
		req, err := http.NewRequest(method, api.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if answer, _ := io.ReadAll(resp.Body); resp.StatusCode < 400 && !strings.Contains(string(answer), `"error"`) && !strings.Contains(string(answer), `"isError":true`) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, answer)
		}
	}
	// Tokens that E2B's API gives to the clients of a sandbox.
	_, made := alice.send("POST", "/sandboxes", `{"templateID":"base","secure":true}`)
	var box struct{ SandboxID, EnvdAccessToken, TrafficAccessToken string }
	if err := json.Unmarshal([]byte(made), &box); err != nil || box.SandboxID == "" {
		t.Fatalf("%v %s", err, made)
	}
	// A person's login. Browsers send its cookie to each port of the host.
	req, _ := http.NewRequest("POST", api.url+"/page/login", strings.NewReader(`{"token":"`+api.key+`"}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", api.url)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 || len(resp.Cookies()) != 1 {
		t.Fatalf("login: %v %+v", err, resp)
	}
	half, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	cookie := resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
	call := func(tool string, a string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + a + `}}`
	}
	id := strings.TrimPrefix(at, "/v1/host/requests/")
	for verb, body := range map[string]string{"/approve": body, "/refuse": ""} {
		for name, headers := range map[string][]string{
			"nothing":                   nil,
			"a namespace":               {"Authorization", "Bearer " + alice.token},
			"a namespace, as none":      {"Authorization", "Bearer " + alice.token, "Demesne-Namespace", ""},
			"a namespace, as operator":  {"Authorization", "Bearer " + alice.token, "Demesne-Namespace", "operator"},
			"a namespace, as E2B's key": {"X-API-KEY", alice.token},
			"a sandbox's token":         {"Authorization", "Bearer " + box.EnvdAccessToken, "X-Access-Token", box.EnvdAccessToken, "E2b-Sandbox-Id", box.SandboxID},
			"a port's token":            {"Authorization", "Bearer " + box.TrafficAccessToken, "E2b-Traffic-Access-Token", box.TrafficAccessToken},
			"a sandbox's id":            {"Authorization", "Bearer " + box.SandboxID},
			"a cookie":                  {"Cookie", cookie},
			"a cookie, own origin":      {"Cookie", cookie, "Origin", api.url, "Sec-Fetch-Site", "same-origin"},
			"a cookie, a port":          {"Cookie", cookie, "Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site", "Demesne-Login", "x"},
			"both halves, a port":       {"Cookie", cookie, "Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site", "Demesne-Login", halfIn(string(half))},
			"both halves, a sandbox":    {"Cookie", cookie, "Origin", "http://127.0.0.2:8000", "Demesne-Login", halfIn(string(half))},
			"the operator's, a port":    {"Authorization", "Bearer " + api.key, "Origin", "http://127.0.0.2:8000"},
		} {
			try(name+verb, "POST", at+verb, body, headers...)
			try(name+verb+" by its address", "POST", at+verb+"?login="+halfIn(string(half)), body, headers...)
		}
	}
	for _, tool := range []string{"host_approve", "host_decide", "request_host_access", "approve"} {
		try("MCP "+tool, "POST", "/mcp", call(tool, `{"id":"`+id+`","digest":"`+digest+`","approve":true,"pattern":["*"],"wait_seconds":0}`), "Authorization", "Bearer "+alice.token)
	}
	if _, a := api.hostAPI(b, "GET", at, "alice", nil); a["state"] != "pending" {
		t.Errorf("the request is %v", a)
	}

	// One approval, one execution.
	_, other := ask()
	if code, _ := api.hostAPI(b, "POST", at+"/approve", "", args{"digest": other}); code != 409 {
		t.Errorf("with the digest of another request: %d", code)
	}
	req, _ = http.NewRequest("POST", api.url+at+"/approve", strings.NewReader(body)) // by the page, as a person
	for name, value := range map[string]string{"Cookie": cookie, "Origin": api.url, "Demesne-Login": halfIn(string(half)), "Content-Type": "application/json"} {
		req.Header.Set(name, value)
	}
	if resp, err = http.DefaultClient.Do(req); err != nil || resp.StatusCode != 204 {
		t.Fatalf("the page's approval: %v %+v", err, resp)
	}
	resp.Body.Close()
	for _, want := range []int{409, 409} {
		if code, a := api.hostAPI(b, "POST", at+"/approve", "", args{"digest": digest}); code != want {
			t.Errorf("%d %v, want %d", code, a, want)
		}
		api.hostAPI(b, "GET", at+"?wait_seconds=10", "alice", nil)
	}
	refused, digest := ask()
	if code, _ := api.hostAPI(b, "POST", refused+"/refuse", "", nil); code != 204 {
		t.Errorf("refuse: %d", code)
	}
	if code, _ := api.hostAPI(b, "POST", refused+"/approve", "", args{"digest": digest}); code != 409 {
		t.Errorf("an approval after a refusal: %d", code)
	}
	if log := b.must("audit", "list", "--type", "host.started", "--limit", "0"); strings.Count(log, "host.started") != 1 {
		t.Errorf("executions: %s", log)
	}
	alice.send("DELETE", "/sandboxes/"+box.SandboxID, "")
	api.stop(syscall.SIGTERM)
}

// halfIn returns the half of a login in the answer to it.
func halfIn(answer string) string {
	var a struct{ Half string }
	json.Unmarshal([]byte(answer), &a)
	return a.Half
}
