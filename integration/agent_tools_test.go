package integration

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// hostToolsBox returns a box for the fake agent whose user has the MCP servers notes and other, with an allowlist.
func hostToolsBox(t *testing.T, allowlist string, script func(fixture.ModelRequest) fixture.Answer) (*box, *fixture.Model) {
	t.Helper()
	b, m := newAgentBox(t, script)
	program, err := os.ReadFile("testdata/agent/notes.py")
	if err != nil {
		t.Fatal(err)
	}
	server := b.file("notes.py", string(program), 0o755)
	drawn := b.mkdir("drawn")
	entry := fmt.Sprintf(`{"command": %q, "env": {"NOTES_LOG": %q, "NOTES_DIR": %q, "NOTES_OWNER": "the user"}}`, server, b.dir+"/notes.log", drawn)
	config := fmt.Sprintf(`{"mcpServers": {"notes": %s, "other": %s, "broken": {"command": "/nonexistent"}}}`, entry, entry)
	b.extra = append(b.extra, "DEMESNE_CLAUDE_CODE_MCP_CONFIG="+b.file("claude.json", config, 0o600), "DEMESNE_CODEX_MCP_CONFIG="+b.dir+"/none",
		"DEMESNE_MCP_ALLOWLIST="+b.file("allowlist.json", strings.ReplaceAll(allowlist, "DRAWN", drawn), 0o600))
	return b, m
}

func results(m *fixture.Model) string {
	var all []string
	for _, r := range m.Log() {
		all = append(all, r.Results...)
	}
	return strings.Join(all, "\n")
}

// TestAgentHostTools: an agent calls an allowed tool of a server of this machine, and no other tool or server.
func TestAgentHostTools(t *testing.T) {
	post := func(server, tool string) fixture.Answer {
		return shell(fmt.Sprintf(`python3 - <<'END' 2>&1 | tail -1
import json, urllib.request as u
session = {}
def call(method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    answer = u.urlopen(u.Request("http://127.0.0.1:8090/%s/mcp", body, {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **session}))
    session["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
    return answer.read()
call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}})
print(call("tools/call", {"name": "%s"}))
END`, server, tool))
	}
	b, m := hostToolsBox(t, `{"_note": "mine", "notes": "default", "broken": "*", "missing": "*"}`, fixture.Steps(
		fixture.Answer{Calls: []fixture.ToolCall{{Name: "notes__search", Input: map[string]any{"q": "milk"}}}},
		post("notes", "remove"), post("other", "search"), fixture.Answer{Text: "done"}))
	r := b.agentTree("Use the notes.")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	said := results(m)
	for _, want := range []string{"found milk as the user", "is not allowed for this server", "404"} {
		if !strings.Contains(said, want) {
			t.Errorf("the agent got no %q:\n%s", want, said)
		}
	}
	for _, req := range m.Log() {
		for _, tool := range req.Tools {
			if strings.Contains(tool, "remove") || strings.Contains(tool, "draw") || strings.Contains(tool, "other") {
				t.Errorf("the agent was offered %s", tool)
			}
		}
	}
	if log, _ := os.ReadFile(b.dir + "/notes.log"); string(log) != "search\n" {
		t.Errorf("the server did %q", log)
	}
	if !strings.Contains(r.stderr, "broken") {
		t.Errorf("nothing is said about the server that cannot start: %s", r.stderr)
	}
}

// TestAgentGenerated: a file that an allowed tool makes is delivered to the agent's workspace.
func TestAgentGenerated(t *testing.T) {
	b, m := hostToolsBox(t, `{"notes": {"tools": ["draw"], "generated": ["DRAWN"]}}`, fixture.Steps(
		fixture.Answer{Calls: []fixture.ToolCall{{Name: "notes__draw"}}}, shell("cat /workspace/generated/picture.txt"), fixture.Answer{Text: "done"}))
	r := b.agentTree("Draw.")
	if said := results(m); r.code != 0 || !strings.Contains(said, "drawn: /workspace/generated/picture.txt") || !strings.Contains(said, "a picture") {
		t.Errorf("%+v\n%s", r, said)
	}
}

// TestAgentResearchTools: an agent with the whole network gets no tool that reads the user's data.
func TestAgentResearchTools(t *testing.T) {
	b, m := hostToolsBox(t, `{"notes": "*"}`, fixture.Steps(fixture.Answer{Text: "done"}))
	if r := b.demesne("research", "Find it."); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, req := range m.Log() {
		for _, tool := range req.Tools {
			if strings.Contains(tool, "notes") {
				t.Errorf("research was offered %s", tool)
			}
		}
	}
}

// TestAgentInputTools: an agent with inputs gets no tool of this machine only because it declares to change nothing. A
// user who names the tool allows it.
func TestAgentInputTools(t *testing.T) {
	for list, offered := range map[string]bool{`{"notes": "default"}`: false, `{"notes": ["search"]}`: true} {
		b, m := hostToolsBox(t, list, fixture.Steps(fixture.Answer{Text: "done"}))
		if r := b.agentTree("Use the notes.", "--in", b.file("private.txt", "private\n", 0o644)); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		for _, req := range m.Log() {
			if slices.Contains(req.Tools, "mcp__notes__search") != offered {
				t.Errorf("%s: offered %q", list, req.Tools)
			}
		}
	}
}

// TestAgentGeneratedServer lets an agent call a published MCP server of this machine, the file server of the protocol's
// authors: what that writes below a directory of generated arrives in the workspace, and the result has the new path.
func TestAgentGeneratedServer(t *testing.T) {
	program := cmp.Or(os.Getenv("DEMESNE_MCP_SERVERS"), "/var/tmp/demesne-mcp-servers") + "/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
	_, err := os.Stat(program)
	need(t, err == nil, "integration/deps.sh: server-filesystem")
	b, m := newAgentBox(t, nil)
	drawn, other := b.mkdir("drawn"), b.mkdir("other")
	write := func(path string) fixture.Answer {
		return fixture.Answer{Calls: []fixture.ToolCall{{Name: "files__write_file", Input: map[string]any{"path": path, "content": "<svg/>"}}}}
	}
	m.Script = fixture.Steps(write(drawn+"/a.svg"), write(other+"/b.svg"), shell("cd /workspace/generated; ls; cat a.svg"), fixture.Answer{Text: "done"})
	b.extra = append(b.extra, "DEMESNE_CLAUDE_CODE_MCP_CONFIG="+b.file("claude.json", fmt.Sprintf(`{"mcpServers": {"files": {"command": "node", "args": [%q, %q, %q]}}}`, program, drawn, other), 0o600),
		"DEMESNE_CODEX_MCP_CONFIG="+b.dir+"/none", "DEMESNE_MCP_ALLOWLIST="+b.file("allowlist.json", fmt.Sprintf(`{"files": {"tools": ["write_file"], "generated": [%q]}}`, drawn), 0o600))
	r := b.agentTree("Draw.")
	said := results(m)
	for _, want := range []string{"Successfully wrote to /workspace/generated/a.svg", "Successfully wrote to " + other + "/b.svg", "a.svg\n<svg/>"} {
		if r.code != 0 || !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s\n%+v", want, said, r)
		}
	}
}
