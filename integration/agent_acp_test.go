package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// acpEvent is a line of integration/clients/acp/client.mjs.
type acpEvent struct {
	What  string
	Value any
}

// acpEvents are the events of one run of the editor.
type acpEvents []acpEvent

// of returns the values of the events of a kind, as text.
func (all acpEvents) of(what string) (values []string) {
	for _, e := range all {
		if e.What == what {
			text, ok := e.Value.(string)
			if !ok {
				raw, _ := json.Marshal(e.Value)
				text = string(raw)
			}
			values = append(values, text)
		}
	}
	return values
}

func (all acpEvents) has(what, part string) bool {
	return slices.ContainsFunc(all.of(what), func(v string) bool { return strings.Contains(v, part) })
}

// editor runs steps of the editor, which starts a command in its own directory and works in dir.
func (b *box) editor(dir string, steps []string, argv ...string) acpEvents {
	b.Helper()
	text, err := os.ReadFile("clients/acp/client.mjs")
	if err != nil {
		b.Fatal(err)
	}
	args := append([]string{b.file("client.mjs", string(text), 0o644), programsDir() + "/editors/node_modules", dir}, steps...)
	return b.played(b.command(program(b, "node"), append(append(args, "--", bin+"/demesne"), argv...)...))
}

func (b *box) played(cmd *exec.Cmd) (all acpEvents) {
	b.Helper()
	r := b.finish(cmd)
	for line := range strings.Lines(r.stdout) {
		var e acpEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	b.Cleanup(func() {
		if b.Failed() {
			b.Logf("%v\n%s", all, r.stderr)
		}
	})
	if r.code != 0 {
		b.Errorf("exit %d: %s", r.code, r.stderr)
	}
	return all
}

// editorScript is a model for three kinds of turns: one that makes a file, one that writes a file by the program's own tool, and
// one that waits until it is cancelled.
func editorScript(work, write fixture.ToolCall) func(fixture.ModelRequest) fixture.Answer {
	return func(r fixture.ModelRequest) fixture.Answer {
		switch {
		case strings.Contains(r.Prompt, "once more"):
			return fixture.Answer{Text: "continued"}
		case strings.Contains(r.Prompt, "and now wait"):
			return fixture.Answer{Text: "waiting", Calls: []fixture.ToolCall{{Run: "sleep 600"}}}
		case strings.Contains(r.Prompt, "write it down") && len(r.Results) < 2:
			return fixture.Answer{Calls: []fixture.ToolCall{write}}
		case len(r.Results) > 0:
			return fixture.Answer{Text: "zebra finished"}
		}
		return fixture.Answer{Calls: []fixture.ToolCall{work}}
	}
}

// TestACP serves the real agents to an editor that is the protocol's published client: a session in a directory, which the
// editor did not start the agent in, a turn whose tool asks for permission, a turn that is cancelled, and the same session
// in another sandbox.
func TestACP(t *testing.T) {
	for _, name := range strings.Fields("claude codex gemini opencode qwen copilot") {
		t.Run(name, func(t *testing.T) { testACP(t, name) })
	}
}

func testACP(t *testing.T, name string) {
	const command = "echo by the agent > made.txt"
	tool := fixture.ToolCall{Run: command}
	if name == "codex" {
		tool = fixture.ToolCall{Name: "exec_command", Input: map[string]any{"cmd": command, "sandbox_permissions": "require_escalated", "justification": "to see"}}
	}
	b, m, repo := newProgramBox(t, nil)
	m.Script = editorScript(tool, fixture.ToolCall{Name: "write_file", Input: map[string]any{"file_path": repo + "/down.txt", "content": "by the editor\n"}})
	steps := []string{"new"}
	// By their own default the model decides what to ask.
	if mode := map[string]string{"claude": "mode default", "codex": "mode workspace-write"}[name]; mode != "" {
		steps = append(steps, mode)
	}
	steps, want := append(steps, "prompt please make the file"), []string{"end_turn", "cancelled"}
	if name == "gemini" { // the one of them whose tools write through the editor
		b.file("h/repo/down.txt", "before\n", 0o644)
		steps, want = append(steps, "prompt write it down"), []string{"end_turn", "end_turn", "cancelled"}
	}
	first := b.editor(repo, append(steps, "cancel and now wait"), "acp", name)
	if name == "gemini" && (!first.has("write", repo+"/down.txt") || !first.has("read", repo+"/down.txt")) {
		t.Errorf("the editor's files: %v", first)
	}
	if !first.has("initialized", "true") || len(first.of("permission")) == 0 || !first.has("agent_message_chunk", "zebra") {
		t.Errorf("the first turn: %v", first)
	}
	if got := first.of("stopped"); !slices.Equal(got, want) {
		t.Errorf("the turns stopped by %q", got)
	}
	if made, _ := os.ReadFile(repo + "/made.txt"); string(made) != "by the agent\n" {
		t.Errorf("made %q", made)
	}
	if name == "gemini" {
		return // within a minute of the first session it finds none, also without a sandbox
	}
	if name == "qwen" {
		return // it starts for as long as all others together
	}
	again := b.editor(repo, []string{"load " + first.of("session")[0], "prompt once more"}, "acp", name)
	if !again.has("user_message_chunk", "please make the file") || !again.has("stopped", "end_turn") {
		t.Errorf("the session again: %v", again)
	}
	b.nowhere(b.home+"/.demesne", realKey)
	b.nowhere(repo, realKey)
}

// TestAgentSDKs starts the agents by the vendors' SDKs for programs, whose option for the program's path names a shim: a turn
// that runs a tool, one that the caller aborts, and the first session again. Claude's asks the caller before a tool runs.
func TestAgentSDKs(t *testing.T) {
	for name, asked := range map[string]string{"claude": "Bash", "codex": ""} {
		t.Run(name, func(t *testing.T) {
			b, m, repo := newProgramBox(t, editorScript(fixture.ToolCall{Run: "echo by the agent > made.txt"}, fixture.ToolCall{}))
			text, err := os.ReadFile("clients/agent_sdk/" + name + ".mjs")
			if err != nil {
				t.Fatal(err)
			}
			if r := b.demesne("agent", "shim", name, b.dir+"/shims"); r.code != 0 {
				t.Fatal(r)
			}
			all := b.played(b.command(program(t, "node"), b.file(name+".mjs", string(text), 0o644), programsDir()+"/editors/node_modules", b.dir+"/shims/"+name, repo))
			if got := all.of("result"); len(all.of("cancelled")) != 1 || got[0] != "zebra finished" || got[len(got)-1] != "continued" || all.of("asked")[0] != asked {
				t.Errorf("%v", all)
			}
			if made, _ := os.ReadFile(repo + "/made.txt"); string(made) != "by the agent\n" {
				t.Errorf("made %q", made)
				for _, r := range m.Log() {
					t.Logf("%s %q", r.Path, r.Results)
				}
			}
		})
	}
}

// TestAgentInforms asks the programs for what needs no model, in the home directory and without a credential. In a project it
// starts one whose MCP servers need a file of the home directory: a line names it, and --mount shows it.
func TestAgentInforms(t *testing.T) {
	b, _, repo := newProgramBox(t, nil)
	with := b.extra
	b.extra = []string{"PATH=" + programsPath()}
	for line, want := range map[string]string{"claude -- --version": "Claude Code", "codex login status": "Not logged in", "gemini --help": "Usage: gemini"} {
		cmd := b.command("demesne", append([]string{"agent"}, strings.Fields(line)...)...)
		cmd.Dir = b.home
		if r := b.finish(cmd); !strings.Contains(r.stdout+r.stderr, want) || strings.Contains(r.stderr, "demesne: ") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	b.extra = with
	server := b.file("h/tools/server", "#!/bin/sh\n", 0o755)
	b.file("h/repo/.mcp.json", `{"mcpServers":{"own":{"command":"`+server+`"}}}`, 0o644)
	for _, flags := range [][]string{nil, {"--mount", server}} {
		cmd := b.command("demesne", slices.Concat([]string{"agent"}, flags, []string{"claude", "-p", "hello"})...)
		cmd.Dir = repo
		if r := b.finish(cmd); r.code != 0 || strings.Contains(r.stderr, "--mount "+server) != (flags == nil) {
			t.Errorf("%q: %+v", flags, r)
		}
	}
}

// TestACPElsewhere checks what an editor gets where no agent can start: an error that says why.
func TestACPElsewhere(t *testing.T) {
	b, _, repo := newProgramBox(t, nil)
	all := b.editor(b.home, []string{"new", "new " + repo, "new /nonexistent"}, "acp", "claude")
	if !all.has("error", "contains your home directory") || len(all.of("error")) != 2 || len(all.of("session")) != 3 {
		t.Errorf("%v", all)
	}
}

// TestEditorsPage starts each command line of the blocks in docs/guide/editors.md as the protocol's client, which gets an answer
// before a sandbox exists.
func TestEditorsPage(t *testing.T) {
	b, _, _ := newProgramBox(t, nil)
	n := 0
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(document(t, "docs/guide/editors.md"), -1) {
		var settings struct {
			Servers map[string]struct {
				Command string
				Args    []string
			} `json:"agent_servers"`
		}
		if err := json.Unmarshal([]byte(block[1]), &settings); err != nil {
			t.Fatalf("%s: %v", block[1], err)
		}
		for name, s := range settings.Servers {
			if all := b.editor(b.dir, nil, s.Args...); s.Command != "demesne" || !all.has("initialized", "true") {
				t.Errorf("%s: %v", name, all)
			}
			n++
		}
	}
	if n == 0 {
		t.Error("the page has no blocks")
	}
}
