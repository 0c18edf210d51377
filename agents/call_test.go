package agents

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCalls checks, for command lines of SDKs, editors and people, what the program gets in addition, and whether the call
// needs a credential.
func TestCalls(t *testing.T) {
	c := open(t, host(t, everyone))
	const claude, bypass, gemini = "--dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox", "--approval-mode yolo"
	for _, x := range []struct {
		line    string
		asks    bool
		with    string // in the argument list
		without string
		informs bool
	}{
		{"claude", false, claude, "", false},
		{"claude -p hello", false, claude, "", false},
		{"claude -- --version", false, "--version", "--mcp-config", true},
		{"claude --output-format stream-json --permission-prompt-tool=stdio", false, "stdio", "dangerously", false},
		{"claude --permission-mode plan", false, "plan", "dangerously", false},
		{"claude -p x", true, "--permission-mode default", "dangerously", false},
		{"claude --permission-mode plan", true, "plan", "default", false},
		{"claude /opt/ext/resources/native-binary/claude --input-format stream-json", false, claude, "/opt", false},
		{"claude /usr/bin/node /opt/ext/cli.js -p x", false, claude, "/opt", false},
		{"claude -- /not/another/program", false, "/not/another/program", "", false},
		{"claude mcp list", false, "mcp list", "dangerously", true},
		{"claude auth status", false, "auth status", "--mcp-config", true},
		{"codex", false, bypass, "", false},
		{"codex login status", false, "login status", "-p demesne", true},
		{"codex app-server --analytics-default-enabled", false, "app-server", "-p demesne", false},
		{"codex exec --help", false, "--help", "", true},
		{"codex exec --sandbox workspace-write x", false, "-p demesne exec", "dangerously", false},
		{"codex exec --config approval_policy=\"never\" x", false, "-p demesne exec", "dangerously", false},
		{"codex -aon-request", false, "-aon-request", "dangerously", false},
		{"codex -- approval_policy=x", false, "approval_policy", "dangerously", false},
		{"gemini --approval-mode default", false, "default", "yolo", false},
		{"gemini", false, gemini, "", false},
		{"gemini", true, "--approval-mode default", "yolo", false},
		{"qwen mcp list", false, "mcp list", "--auth-type", true},
		{"copilot", true, "--no-auto-update", "--allow-all", false},
		{"opencode models", false, "models", "", true},
	} {
		args := strings.Fields(x.line)
		a, err := c.Find(args[0])
		if err != nil {
			t.Fatal(err)
		}
		call := a.Provider.NewCall(args[1:])
		call.Asks = x.asks
		l, err := a.Interactive(Task{}, call, HomeDir)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(l.Argv[len(a.program.argv):], " ")
		if !strings.Contains(got, x.with) || x.without != "" && strings.Contains(got, x.without) || a.Provider.Informs(call) != x.informs {
			t.Errorf("%s: %q, informs %t", x.line, got, a.Provider.Informs(call))
		}
		if allows := slices.Contains(l.Env, "COPILOT_ALLOW_ALL=true"); args[0] == "copilot" && allows == x.asks {
			t.Errorf("%s: %q", x.line, l.Env)
		}
	}
	a, err := c.Find("pi")
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []Call{{Asks: true}, {ACP: true}} {
		if _, err := a.Interactive(Task{}, call, HomeDir); err == nil {
			t.Errorf("pi: %+v", call)
		}
	}
	row := codex()
	for line, want := range map[string]string{"exec --cd /p x": "/p", "--cd=/q": "/q", "-C /r": "/r", "x -- --cd /s": "", "--cd": ""} {
		if got := row.NewCall(strings.Fields(line)).Dir; got != want {
			t.Errorf("%s: directory %q, want %q", line, got, want)
		}
	}
}

// TestACPLaunch checks that an adapter speaks for the program that this host has, with what both need.
func TestACPLaunch(t *testing.T) {
	bin := install(t, map[string]string{"claude": elf, "claude-agent-acp": elf})
	c, err := Open(host(t, map[string]string{"ANTHROPIC_API_KEY": "x", "PATH": bin}))
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Interactive(Task{}, Call{ACP: true}, HomeDir)
	if err != nil || !slices.Equal(l.Argv, []string{bin + "/claude-agent-acp"}) || !slices.Contains(l.Env, "CLAUDE_CODE_EXECUTABLE="+bin+"/claude") || len(l.Mounts) != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	if err := os.Remove(bin + "/claude-agent-acp"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Interactive(Task{}, Call{ACP: true}, HomeDir); err == nil || !strings.Contains(err.Error(), "adapter") {
		t.Errorf("without the adapter: %v", err)
	}
}

// TestBare checks that a call that asks no model needs no credential, and that a shim is not the program.
func TestBare(t *testing.T) {
	bin, shims := install(t, map[string]string{"claude": elf}), t.TempDir()
	if err := os.WriteFile(filepath.Join(shims, "claude"), []byte("#!/bin/sh\n"+ShimMark+"\nexec demesne\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := Open(host(t, map[string]string{"PATH": shims + ":" + bin}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find("claude"); err == nil {
		t.Error("no error without a credential")
	}
	a, err := c.Bare().Find("claude")
	if err != nil || !slices.Equal(a.program.argv, []string{bin + "/claude"}) {
		t.Errorf("%+v, %v", a, err)
	}
}
