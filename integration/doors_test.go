package integration

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wish is what a caller asks for, in the words of the HTTP API. Each door translates it into its own.
type wish struct {
	image, mode, secret string
	allow               []string
}

// doors are the ways by which a caller gets a sandbox. Each returns whether the caller got it, and what was said.
var doors = map[string]func(c tenant, q wish) (got bool, said string){
	"create": func(c tenant, q wish) (bool, string) { return c.asks("/v1/sandboxes", q.settings()) },
	"run": func(c tenant, q wish) (bool, string) {
		return c.asks("/v1/run", q.settings("command", "true"))
	},
	"job": func(c tenant, q wish) (bool, string) {
		return c.asks("/v1/jobs", q.settings("command", "true"))
	},
	"mcp": func(c tenant, q wish) (bool, string) {
		arguments := map[string]any{"command": "true", "egress": "none"}
		for name, value := range map[string]string{"image": q.image, "egress": q.mode} {
			if value != "" {
				arguments[name] = value
			}
		}
		if q.secret != "" {
			arguments["secrets"] = []string{q.secret}
		}
		if q.allow != nil {
			arguments["allowed_domains"] = q.allow
		}
		text, failed := c.tool("sandbox_script", arguments)
		return !failed, text
	},
	"e2b": func(c tenant, q wish) (bool, string) {
		if q.mode != "" || q.secret != "" {
			return false, "E2B has neither modes nor stored secrets"
		}
		body := map[string]any{"templateID": q.image, "allow_internet_access": false}
		if q.allow != nil {
			body["network"] = map[string]any{"allowOut": q.allow, "denyOut": []string{"0.0.0.0/0"}}
		}
		return c.asks("/v2/sandboxes", body)
	},
}

// settings returns the request of an API of demesne's own. more are further members and their values.
func (q wish) settings(more ...string) map[string]any {
	body := map[string]any{}
	if q.image != "" {
		body["image"] = q.image
	}
	if q.mode != "" || q.allow != nil {
		network := map[string]any{"mode": "none", "allow": q.allow}
		if q.mode != "" {
			network["mode"] = q.mode
		}
		body["network"] = network
	}
	if q.secret != "" {
		body["secrets"] = []string{q.secret}
	}
	for i := 0; i < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return body
}

// asks posts a request, and reports whether it was granted.
func (c tenant) asks(path string, body map[string]any) (got bool, said string) {
	text, _ := json.Marshal(body)
	status, answer := c.send("POST", path, string(text))
	if status >= 500 {
		c.t.Errorf("%s %s: %d %s", path, text, status, answer)
	}
	return status < 300, answer
}

// TestOperatorDoors checks that each decision of an operator has one answer at every door, and that what a rule narrows is
// narrow at every door.
func TestOperatorDoors(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	config := b.file("serve.toml", `
allowed-images = ["local/own"]
allowed-domains = ["listed.example.com", "read.example.com:443 methods=GET"]
egress = "package-managers"
tools = "files,sandboxes,runs"
`, 0o600)
	_, alice, _ := b.tenants("--config", config)
	npm := b.packageServers("npm")[0]
	for _, row := range []struct {
		wish
		want bool
	}{
		{wish{}, true}, {wish{image: "host"}, true}, {wish{image: "ghcr.io/other/image"}, false}, {wish{image: "dir:/"}, false},
		{wish{mode: "package-managers"}, true}, {wish{mode: "open"}, false}, {wish{mode: "all"}, false},
		{wish{allow: []string{"listed.example.com"}}, true}, {wish{allow: []string{"read.example.com"}}, true}, {wish{allow: []string{npm}}, true},
		{wish{allow: []string{"example.com"}}, false}, {wish{allow: []string{"x.listed.example.com"}}, false}, {wish{allow: []string{"10.0.0.1"}}, false}, {wish{allow: []string{"read.example.com:22"}}, false},
		{wish{secret: "NONE"}, false},
	} {
		for _, door := range slices.Sorted(maps.Keys(doors)) {
			if door == "e2b" && (row.mode != "" || row.secret != "") || door == "job" && row.secret != "" {
				continue // it has no word for that
			}
			if got, said := doors[door](alice, row.wish); got != row.want {
				t.Errorf("%+v at %s: %v, want %v: %.300s", row.wish, door, got, row.want, said)
			}
		}
	}
	narrow := 0
	for _, s := range alice.get("GET", "/v1/sandboxes", "")["items"].([]any) {
		network, _ := s.(map[string]any)["network"].(map[string]any)
		if text := fmt.Sprint(network["allow"]); strings.Contains(text, "read.example.com") {
			if narrow++; !strings.Contains(text, "methods=GET") {
				t.Errorf("wider than the operator's rule: %s", text)
			}
		}
	}
	if narrow < 2 {
		t.Errorf("%d sandboxes have the narrowed rule", narrow)
	}
	alice.clear()
}

// clear removes the sandboxes of a namespace.
func (c tenant) clear() {
	c.t.Helper()
	for _, s := range c.get("GET", "/v1/sandboxes", "")["items"].([]any) {
		c.get("DELETE", "/v1/sandboxes/"+s.(map[string]any)["id"].(string), "")
	}
}

// TestArgv checks that the words of a command reach the program as they are, from every door that takes words.
func TestArgv(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	_, alice, _ := b.tenants("--tools", "sandboxes,runs")
	words := []string{"printf", "%s|", "a b", "$(id)", `"`, "'", "*", "--", ""}
	const want = `a b|$(id)|"|'|*|--||`
	list, _ := json.Marshal(words)
	if r := b.demesne(append([]string{"run", "--"}, words...)...); r.stdout != want {
		t.Errorf("run: %+v", r)
	}
	id := alice.get("POST", "/v1/sandboxes", "{}")["id"].(string)
	for path, status := range map[string]int{"/v1/run": 200, "/v1/sandboxes/" + id + "/exec": 200} {
		answer := alice.get("POST", path, `{"argv": `+string(list)+`}`)
		if got := answer["stdout"].(map[string]any)["text"]; got != want {
			t.Errorf("%s: %d %q", path, status, got)
		}
	}
	job := alice.get("POST", "/v1/jobs", `{"argv": `+string(list)+`}`)["id"].(string)
	ended := alice.get("POST", "/v1/jobs/"+job+"/wait?timeout_ms=60000", "")
	if got := ended["stdout"].(map[string]any)["text"]; got != want {
		t.Errorf("a job: %v", ended)
	}
	steps := []any{map[string]any{"argv": words}}
	if text, failed := alice.tool("sandbox_script", map[string]any{"commands": steps, "egress": "none"}); failed || !strings.Contains(text, want) {
		t.Errorf("sandbox_script: %s", text)
	}
	text, failed := alice.tool("run_sandbox", map[string]any{"identifier": "argv", "commands": steps, "options": map[string]any{"await_completion": true, "await_timeout_ms": 60000, "egress": "none"}})
	if failed || !strings.Contains(text, `"exit_code": 0`) {
		t.Errorf("run_sandbox: %s", text)
	}
	if text, failed := alice.tool("delete_sandbox", map[string]any{"identifier": "argv"}); failed {
		t.Errorf("delete_sandbox: %s", text)
	}
	e2bWords(t, alice, words, want)
	alice.clear()
}

// e2bWords starts the words as a process of E2B's API.
func e2bWords(t *testing.T, c tenant, words []string, want string) {
	_, text := c.process(c.get("POST", "/v2/sandboxes", `{"allow_internet_access": false}`), words, "")
	output := ""
	for _, m := range regexp.MustCompile(`"stdout":"([^"]*)"`).FindAllStringSubmatch(text, -1) {
		part, err := base64.StdEncoding.DecodeString(m[1])
		if err != nil {
			t.Fatal(err)
		}
		output += string(part)
	}
	if output != want {
		t.Errorf("a process of E2B's API: %q", text)
	}
}

// process starts a command in a sandbox of E2B's API, and returns its events. more are further members of the request.
func (c tenant) process(sandbox map[string]any, argv []string, more string) (int, string) {
	args, _ := json.Marshal(argv[1:])
	message := `{"process": {"cmd": "` + argv[0] + `", "args": ` + string(args) + `}` + more + `}`
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	return c.send("POST", "/process.Process/Start", string(frame), "Content-Type: application/connect+json", "Connect-Protocol-Version: 1",
		"E2b-Sandbox-Id: "+sandbox["sandboxID"].(string), "E2b-Sandbox-Port: 49983", "X-Access-Token: "+sandbox["envdAccessToken"].(string))
}
