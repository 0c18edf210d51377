package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestServeBounds checks that no caller passes the operator's ceilings, by any API.
func TestServeBounds(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	config := b.file("serve.toml", `
max-memory = "256m"
max-pids = 100
max-timeout = "2s"
allowed-images = ["local/own"]
allowed-domains = ["listed.example.com"]
egress = "package-managers"
max-running = 1
max-waiting = 1
tools = "files,sandboxes,runs"

[namespaces.alice]
max-sandboxes = 2

[namespaces.bob]
egress = "none"

[namespaces.carol]
egress = "none"
max-timeout = "1h"
`, 0o600)
	s, alice, bob := b.tenants("--config", config)
	operator := tenant{t, s.url, s.key}
	npm := b.packageServers("npm")[0]
	for _, c := range []tenant{operator, alice} {
		for request, want := range map[string]string{
			`{"limits": {"memory": 1073741824, "pids": 4000}}`: `"memory":268435456,"pids":100`,
			`{}`:                               `"memory":268435456,"pids":100`,
			`{"image": "ghcr.io/other/image"}`: "the operator does not allow this image",
			`{"network": {"mode": "open"}}`:    `the operator allows \"package-managers\"`,
			`{"network": {"mode": "package-managers", "allow": ["example.com"]}}`:          "not part of it",
			`{"network": {"mode": "package-managers", "allow": ["10.0.0.1:*"]}}`:           "not part of it",
			`{"network": {"mode": "none", "allow": ["` + npm + ` private"]}}`:              "not part of it",
			`{"network": {"mode": "none", "allow": ["listed.example.com","` + npm + `"]}}`: `"allow":["listed.example.com","` + npm + `"]`,
		} {
			_, text := c.send("POST", "/v1/sandboxes", request)
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s, want %s", request, text, want)
			}
			var made struct{ ID string }
			if json.Unmarshal([]byte(text), &made); made.ID != "" {
				c.get("DELETE", "/v1/sandboxes/"+made.ID, "")
			}
		}
	}
	if status, text := bob.send("POST", "/v1/sandboxes", `{"network": {"mode": "package-managers"}}`); status != 400 {
		t.Errorf("a namespace without a network: %d %s", status, text)
	}
	for i, want := range []int{201, 201, 429} {
		if status, text := alice.send("POST", "/v2/sandboxes", `{"network": {"allowOut": ["`+npm+`"]}}`); status != want {
			t.Errorf("sandbox %d: %d %s", i+1, status, text)
		}
	}
	if status, text := alice.send("POST", "/v2/sandboxes", `{"network": {"allowOut": ["192.168.1.1"]}}`); status != 400 {
		t.Errorf("a private address by E2B's API: %d %s", status, text)
	}
	if text, failed := alice.tool("sandbox_create", map[string]any{}); !failed || !strings.Contains(text, "too many sandboxes") {
		t.Errorf("one sandbox more by MCP: %s", text)
	}
	for _, arguments := range []map[string]any{
		{"command": "true", "limits": map[string]any{"memory": 1 << 30}}, {"command": "true", "egress": "open"}, {"command": "true", "image": "ghcr.io/other/image"},
		{"command": "true", "timeout_seconds": 60}, {"command": "true", "allowed_domains": []string{"example.com"}}, {"command": "true", "files": []string{"/etc/hostname"}},
	} {
		if text, failed := alice.tool("sandbox_script", arguments); !failed {
			t.Errorf("%v by MCP: %.200s", arguments, text)
		}
	}
	if text, failed := alice.tool("sandbox_agent", map[string]any{"prompt": "x"}); !failed {
		t.Errorf("an agent: %s", text)
	}
	began := time.Now()
	if status, text := bob.send("POST", "/v1/run", `{"command": "sleep 30"}`); status != 200 || time.Since(began) > 30*time.Second {
		t.Errorf("a long command: %d %s after %s", status, text, time.Since(began))
	}

	// One command runs, one waits, and the third of its namespace is refused. Another namespace's waits beside it.
	carol := tenant{b, s.url, strings.TrimSpace(b.cli("serve", "token", "add", "carol"))}
	codes := make(chan int, 3)
	for range 2 {
		go func() { status, _ := carol.send("POST", "/v1/run", `{"command": "`+untilTold+`"}`); codes <- status }()
	}
	eventually(t, "a command to wait", func() bool {
		_, text := carol.send("GET", "/v1/queue", "")
		return strings.Contains(text, `"running":1,"waiting":1,"max_running":1,"max_waiting":1`)
	})
	if status, text := carol.send("POST", "/v1/run", `{"command": "true"}`); status != http.StatusTooManyRequests {
		t.Errorf("beyond the queue: %d %s", status, text)
	}
	if _, text := alice.send("GET", "/v1/queue", ""); !strings.Contains(text, `"running":0,"waiting":0`) {
		t.Errorf("another namespace's queue: %s", text)
	}
	go func() { status, _ := alice.send("POST", "/v1/run", `{"command": "true"}`); codes <- status }()
	eventually(t, "a command of another namespace to wait", func() bool {
		_, text := alice.send("GET", "/v1/queue", "")
		return strings.Contains(text, `"running":0,"waiting":1`)
	})
	b.told()()
	b.told()()
	for range 3 {
		if status := <-codes; status != 200 {
			t.Errorf("a command that waited: %d", status)
		}
	}
	carol.queuesProcesses(b)
	made := bob.get("POST", "/v2/sandboxes", `{"allow_internet_access": false}`)
	began = time.Now()
	if _, text := bob.process(made, []string{"/bin/sleep", "30"}, ""); !strings.Contains(text, "signal: killed") || time.Since(began) > 30*time.Second {
		t.Errorf("a long process: %q after %s", text, time.Since(began))
	}
	alice.everyDoor()
	if _, text := carol.send("GET", "/v1/audit", ""); !strings.Contains(text, "queue.backpressure") {
		t.Errorf("the events of the queue: %s", text)
	}
	for _, sandbox := range operator.get("GET", "/v1/sandboxes", "")["items"].([]any) {
		operator.get("DELETE", "/v1/sandboxes/"+sandbox.(map[string]any)["id"].(string), "")
	}
}

// everyDoor sends what the ceilings of TestServeBounds exclude at each door that makes or changes a sandbox. c's namespace has
// two sandboxes, the most that it may have.
func (c tenant) everyDoor() {
	c.t.Helper()
	id := c.get("GET", "/v1/sandboxes", "")["items"].([]any)[0].(map[string]any)["id"].(string)
	var list []struct{ SandboxID string }
	if _, text := c.send("GET", "/v2/sandboxes", ""); json.Unmarshal([]byte(text), &list) != nil || len(list) == 0 {
		c.t.Fatal(text)
	}
	e2b := list[0].SandboxID
	for _, row := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PATCH", "/v1/sandboxes/" + id + "/limits", `{"memory": 1073741824, "pids": 5000}`, 200, `"memory":268435456,"pids":100`},
		{"PUT", "/v1/sandboxes/" + id + "/egress", `{"mode": "open"}`, 400, "the operator allows"},
		{"PUT", "/v1/sandboxes/" + id + "/egress", `{"mode": "none", "allow": ["example.com"]}`, 400, "the operator allows"},
		{"POST", "/v1/sandboxes/" + id + "/egress/allow", `{"rules": ["10.0.0.1:*"]}`, 400, "the operator allows"},
		{"PUT", "/sandboxes/" + e2b + "/network", `{"allowOut": ["example.com"]}`, 400, "the operator allows"},
		{"POST", "/v1/sandboxes/" + id + "/fork", `{}`, 429, "too many sandboxes"},
		{"POST", "/sandboxes/" + e2b + "/fork", `{}`, 201, `"code":429,"message":"create sandbox: too many sandboxes (2) (remove a sandbox of this namespace`},
		{"POST", "/v1/run", `{"command": "true", "image": "ghcr.io/other/image"}`, 400, "does not allow this image"},
		{"POST", "/v1/run", `{"command": "true", "network": {"mode": "open"}}`, 400, "the operator allows"},
		{"POST", "/v1/images/pull", `{"name": "ghcr.io/other/image"}`, 400, "does not allow this image"},
		{"POST", "/v1/jobs", `{"command": "true", "image": "ghcr.io/other/image"}`, 400, "image"},
		{"POST", "/v1/jobs", `{"command": "true", "limits": {"memory": 1073741824}}`, 400, "limits.memory"},
		{"POST", "/v1/jobs", `{"command": "true", "limits": {"pids": 5000}}`, 400, "limits.pids"},
		{"POST", "/v1/jobs", `{"command": "true", "network": {"mode": "open"}}`, 400, "the operator allows"},
		{"POST", "/v1/jobs", `{"command": "true", "network": {"mode": "none", "allow": ["example.com"]}}`, 400, "example.com"},
		{"POST", "/v1/jobs", `{"command": "true", "timeout_ms": 60000}`, 400, "timeout_ms"},
		{"POST", "/v1/agents", `{"prompt": "x"}`, 400, "agent"},
		{"POST", "/v1/host/commands", `{"argv": ["id"]}`, 404, ""},
	} {
		if status, text := c.send(row.method, row.path, row.body); status != row.status || !strings.Contains(text, row.want) {
			c.t.Errorf("%s %s %s: %d %.300s, want %d %s", row.method, row.path, row.body, status, text, row.status, row.want)
		}
	}
	shell := []any{map[string]any{"shell": "sleep 30", "timeout_ms": 60000}}
	wait := map[string]any{"await_completion": true, "await_timeout_ms": 15000}
	for name, rows := range map[string][]map[string]any{
		"sandbox_create": {{"limits": map[string]any{"disk": 1 << 50}}, {"limits": map[string]any{"pids": 5000}}, {"image": "ghcr.io/other/image"}, {"egress": "open"}, {"workspace": "/etc"}},
		"sandbox_exec":   {{"sandbox_id": id, "command": "true", "timeout_seconds": 60}},
		"sandbox_fork":   {{"sandbox_id": id}},
		"run_sandbox": {
			{"identifier": "a", "commands": shell, "options": map[string]any{"image": "ghcr.io/other/image"}}, {"identifier": "a", "commands": shell, "options": map[string]any{"egress": "open"}},
		},
	} {
		for _, arguments := range rows {
			if text, failed := c.tool(name, arguments); !failed {
				c.t.Errorf("%s %v: %.200s", name, arguments, text)
			}
		}
	}
	ws, _, err := websocket.Dial(c.t.Context(), "ws"+strings.TrimPrefix(c.url, "http")+"/v1/sandboxes/"+id+"/terminal", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + c.token}}})
	if err != nil {
		c.t.Fatal(err)
	}
	defer ws.CloseNow()
	var last []byte // both messages of the server: what it reduces, and that the shell ended
	for kind, b, err := ws.Read(c.t.Context()); err == nil; kind, b, err = ws.Read(c.t.Context()) {
		if kind == websocket.MessageText {
			last = append(last, b...)
		}
	}
	if text := string(last); !strings.Contains(text, "ends this program after 2s") || !strings.Contains(text, `"type":"exit"`) {
		c.t.Errorf("a terminal: %s", text)
	}
	c.get("DELETE", "/v1/sandboxes/"+id, "")
	began := time.Now()
	if text, _ := c.tool("run_sandbox", map[string]any{"identifier": "long", "commands": shell, "options": wait}); !strings.Contains(text, "timed out") || !strings.Contains(text, "timeout_ms of 1 of 1 commands: reduced to 2000, the operator's maximum") || time.Since(began) > 30*time.Second {
		c.t.Errorf("a long command of a run: %s after %s", text, time.Since(began))
	}
}

// queuesProcesses checks that processes and terminals of E2B's API wait like the commands of the others.
func (c tenant) queuesProcesses(b *box) {
	c.t.Helper()
	made := c.get("POST", "/v2/sandboxes", `{"allow_internet_access": false}`)
	start := func(command, more string) (int, string) {
		return c.process(made, []string{"/bin/sh", "-c", command}, more)
	}
	state := func(want string) {
		eventually(c.t, want, func() bool { _, text := c.send("GET", "/v1/queue", ""); return strings.Contains(text, want) })
	}
	answers := make(chan string, 2)
	go func() { _, text := start(untilTold, ""); answers <- text }()
	tell := b.told()
	go func() { _, text := start("echo later", `, "pty": {"size": {"cols": 80, "rows": 24}}`); answers <- text }()
	state(`"running":1,"waiting":1`)
	if _, text := start("true", ""); !strings.Contains(text, "resource_exhausted") || !strings.Contains(text, "the queue is full") {
		c.t.Errorf("a process beyond the queue: %q", text)
	}
	if status, text := c.send("POST", "/v1/run", `{"command": "true"}`); status != http.StatusTooManyRequests {
		c.t.Errorf("a command beyond the queue of processes: %d %s", status, text)
	}
	if len(answers) > 0 {
		c.t.Errorf("the terminal did not wait: %q", <-answers)
	}
	tell()
	for range 2 {
		if text := <-answers; !strings.Contains(text, "exit status 0") {
			c.t.Errorf("a process: %q", text)
		}
	}
	state(`"running":0,"waiting":0`)
	if _, text := start("rm /out/up /out/go", ""); !strings.Contains(text, "exit status 0") {
		c.t.Errorf("a process: %q", text)
	}
	code := func(text string) (int, string) {
		return c.send("POST", "/execute", `{"code": "`+text+`"}`, "E2b-Sandbox-Id: "+made["sandboxID"].(string), "E2b-Sandbox-Port: 49999",
			"X-Access-Token: "+made["envdAccessToken"].(string))
	}
	go func() {
		_, text := code(`import os, time\nopen('/out/up', 'w')\nwhile not os.path.exists('/out/go'): time.sleep(0.05)\nprint('early')`)
		answers <- text
	}()
	tell = b.told()
	go func() { _, text := start("echo later", ""); answers <- text }()
	state(`"running":1,"waiting":1`)
	if status, text := code("1"); status != http.StatusTooManyRequests {
		c.t.Errorf("code beyond the queue: %d %s", status, text)
	}
	tell()
	if text := <-answers + <-answers; !strings.Contains(text, "early") || !strings.Contains(text, "exit status 0") {
		c.t.Errorf("code, and a process after it: %q", text)
	}
	state(`"running":0,"waiting":0`)
}

// certificate returns a certificate for localhost and its key, as PEM.
func certificate(t testing.TB, serial int64) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// TestServeTLS serves TLS by files, which change while the server runs.
func TestServeTLS(t *testing.T) {
	b := newBox(t)
	cert, key := certificate(t, 1)
	certFile, keyFile := b.file("cert.pem", cert, 0o644), b.file("key.pem", key, 0o600)
	s := b.serveAPI("--tls-cert", certFile, "--tls-key", keyFile)
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("%s", s.url)
	}
	get := func(cert string) (serial int64, status int) {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(cert))
		c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		req, _ := http.NewRequest("GET", s.url+"/v1/queue", nil)
		req.Header.Set("X-API-KEY", s.key)
		resp, err := c.Do(req)
		if err != nil {
			return 0, 0
		}
		resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64(), resp.StatusCode
	}
	if serial, status := get(cert); serial != 1 || status != 200 {
		t.Errorf("certificate %d, %d", serial, status)
	}
	if resp, err := http.Get("http" + strings.TrimPrefix(s.url, "https") + "/health"); err == nil && resp.StatusCode != 400 {
		t.Errorf("without TLS: %d", resp.StatusCode)
	}
	b.file("cert.pem", "broken", 0o644)
	time.Sleep(1100 * time.Millisecond) // the server looks at the files once a second
	if serial, _ := get(cert); serial != 1 {
		t.Error("a broken file stops the server")
	}
	next, nextKey := certificate(t, 2)
	b.file("key.pem", nextKey, 0o600)
	b.file("cert.pem", next, 0o644)
	eventually(t, "the new certificate", func() bool { serial, _ := get(next); return serial == 2 })
	b.file("key.pem", nextKey, 0o644)
	if r := b.demesne("serve", "--tls-cert", certFile, "--tls-key", keyFile, "--env"); r.code == 0 || !strings.Contains(r.stderr, "other users can read it") {
		t.Errorf("a key that others can read is accepted: %+v", r)
	}
}
