package integration

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeRetention checks with the real programs that gc --outputs and the server's --keep-outputs and --keep-audit remove
// what is old, and nothing else.
func TestServeRetention(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	api := b.serveAPI("--egress", "none")
	c := tenant{t, api.url, api.key}
	ran := func() (run, job string) {
		t.Helper()
		run = c.get("POST", "/v1/run", `{"command": "echo kept"}`)["run"].(string)
		job = c.get("POST", "/v1/jobs", `{"command": "echo kept"}`)["id"].(string)
		eventually(t, "the job", func() bool { return c.get("GET", "/v1/jobs/"+job, "")["status"] == "succeeded" })
		return run, job
	}
	const old = 3 * time.Second // by the time of the inode's last change, which nothing sets
	age := func() { time.Sleep(old + time.Second) }
	there := func(run, job string) (all string) {
		for _, path := range []string{"/v1/outputs/" + run, "/v1/jobs/" + job} {
			if status, _ := c.send("GET", path, ""); status == 200 {
				all += path + " "
			}
		}
		return all
	}
	// stays checks that what is new stays where collect removes what is old. On a slow machine it is old too before it was looked for.
	stays := func(collect func()) (run, job string) {
		t.Helper()
		eventually(t, "what is new to stay", func() bool {
			began := time.Now()
			run, job = ran()
			collect()
			got := there(run, job)
			late := time.Since(began) > old
			if !late && strings.Count(got, "/v1/") != 2 {
				t.Fatalf("new: only %s", got)
			}
			return !late
		})
		return run, job
	}
	run1, job1 := ran()
	age()
	run2, job2 := stays(func() {
		if out := b.must("gc", "--outputs", "--older-than", old.String()); !strings.Contains(out, " jobs, freed ") {
			t.Error(out)
		}
	})
	if got := there(run1, job1); got != "" {
		t.Errorf("old: %s", got)
	}
	api.stop(syscall.SIGTERM)
	age()
	api = b.serveAPI("--egress", "none", "--keep-outputs", old.String(), "--keep-audit", old.String())
	c = tenant{t, api.url, api.key}
	eventually(t, "the old outputs to go", func() bool { return there(run2, job2) == "" })
	stays(func() {})
	b.must("audit", "verify")
}

// TestServeToolTexts checks that the texts of an operator are what clients of MCP list.
func TestServeToolTexts(t *testing.T) {
	b := newBox(t)
	file := b.file("texts.toml", "[sandbox_script]\nappend = \"Prefer the image python:3.12.\"\n\n[sandbox_exec]\noverride = \"Runs a command in your sandbox.\"\n", 0o600)
	s := b.serveAPI("--egress", "none", "--tools", "sandboxes", "--tool-texts", file)
	c := tenant{t, s.url, s.key}
	_, text := c.send("POST", "/mcp", `{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}`, "Accept: application/json")
	var list struct {
		Result struct {
			Tools []struct{ Name, Description string }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v %.300s", err, text)
	}
	got := map[string]string{}
	for _, tool := range list.Result.Tools {
		got[tool.Name] = tool.Description
	}
	if d := got["sandbox_script"]; !strings.HasSuffix(d, "Prefer the image python:3.12.") || len(d) < 100 {
		t.Errorf("sandbox_script: %q", d)
	}
	if d := got["sandbox_exec"]; d != "Runs a command in your sandbox." {
		t.Errorf("sandbox_exec: %q", d)
	}
}
