package integration

import (
	"encoding/json"
	"os"
	"os/exec"
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

// TestACP serves the real agents to an editor that is the protocol's published client: a session in a directory, which the
// editor did not start the agent in, a turn whose tool asks for permission, a turn that is cancelled, and the same session
// in another sandbox.
func TestACP(t *testing.T) {
	for _, name := range strings.Fields("claude codex gemini opencode") {
		t.Run(name, func(t *testing.T) { testACP(t, name) })
	}
}

func testACP(t *testing.T, name string) {
	endless := make(chan struct{})
	t.Cleanup(func() { close(endless) })
	b, m, repo := newProgramBox(t, func(r fixture.ModelRequest) fixture.Answer {
		switch {
		case strings.Contains(r.Prompt, "once more"):
			return fixture.Answer{Text: "continued"}
		case strings.Contains(r.Prompt, "and now wait"):
			return fixture.Answer{Text: "waiting", Calls: []fixture.ToolCall{{Run: "sleep 600"}}}
		case len(r.Results) > 0:
			return fixture.Answer{Text: "zebra finished"}
		}
		const command = "echo by the agent > made.txt; rm -f /tmp/x"
		if name == "codex" {
			return fixture.Answer{Calls: []fixture.ToolCall{{Name: "exec_command", Input: map[string]any{"cmd": command, "sandbox_permissions": "require_escalated", "justification": "to see"}}}}
		}
		return fixture.Answer{Calls: []fixture.ToolCall{{Run: command}}}
	})
	steps := []string{"new"}
	// By their own default the model decides what to ask.
	if mode := map[string]string{"claude": "mode default", "codex": "mode workspace-write"}[name]; mode != "" {
		steps = append(steps, mode)
	}
	first := b.editor(repo, append(steps, "prompt please make the file", "cancel and now wait"), "acp", name)
	t.Log(first)
	for _, r := range m.Log() {
		t.Logf("%s %.200q", r.Path, r.Results)
	}
	if !first.has("initialized", "true") || len(first.of("permission")) == 0 || !first.has("agent_message_chunk", "zebra") {
		t.Errorf("the first turn: %v", first)
	}
	if got := first.of("stopped"); !slices.Equal(got, []string{"end_turn", "cancelled"}) {
		t.Errorf("the turns stopped by %q", got)
	}
	if made, _ := os.ReadFile(repo + "/made.txt"); string(made) != "by the agent\n" {
		t.Errorf("made %q", made)
	}
	if name == "gemini" {
		return // within a minute of the first session it finds none, also without a sandbox
	}
	again := b.editor(repo, []string{"load " + first.of("session")[0], "prompt once more"}, "acp", name)
	t.Log(again, b.host(b.home, "find .demesne/agents -type f | grep -v /plugins/ | head -60"))
	if !again.has("user_message_chunk", "please make the file") || !again.has("stopped", "end_turn") {
		t.Errorf("the session again: %v", again)
	}
	b.nowhere(b.home+"/.demesne", realKey)
	b.nowhere(repo, realKey)
}
