package integration

import (
	"os"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// textAgent is a program that asks the model once, prints its answer and nothing else. A prompt with FAIL makes it fail.
const textAgent = `#!/bin/sh
for prompt; do :; done
case $prompt in *FAIL*) echo half an answer; echo out of luck >&2; exit 3;; *SHOW*) echo "$@"; exit;; esac
exec python3 -c 'import json, os, sys, urllib.request
body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": sys.argv[1]}], "tools": [{"type": "function", "function": {"name": "none"}}]}
head = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
ask = urllib.request.Request(os.environ["OPENAI_API_BASE"] + "/chat/completions", json.dumps(body).encode(), head)
print(json.load(urllib.request.urlopen(ask))["choices"][0]["message"]["content"])' "$prompt"
`

// TestAgentText runs the row of the reference, whose format is text: in a terminal's place, by a tool, and with arguments of the
// user's. Its program is a small one.
func TestAgentText(t *testing.T) {
	page := readFile(t, "../docs/reference/agents.md")
	_, after, _ := strings.Cut(page, "```json\n")
	row, _, _ := strings.Cut(after, "```")
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3")
	}
	b := newBox(t)
	b.file("prog/aider", textAgent, 0o755)
	m := &fixture.Model{Script: func(r fixture.ModelRequest) fixture.Answer {
		return fixture.Answer{Text: "First line.\n\n" + strings.TrimSpace(r.Prompt) + " done.", Tokens: fixture.ModelTokens{Input: 1000, Output: 100}}
	}}
	url, stop := m.Start()
	t.Cleanup(stop)
	b.extra = append(b.extra, "PATH="+b.dir+"/prog:"+os.Getenv("PATH"), "DEMESNE_AGENTS_FILE="+b.file("agents.json", row, 0o644),
		"OPENAI_API_KEY="+realKey, "OPENAI_BASE_URL="+url, "DEMESNE_CODEX_ENABLED=false", "DEMESNE_CLAUDE_CODE_ENABLED=false")
	b.prepareHome()

	r := b.agentTree("--model", "aider/gpt-5.5", "Mend it.")
	if r.code != 0 || r.stdout != "First line.\n\nMend it. done.\n" || r.results.ExitCode != 0 || r.results.Total <= 0 {
		t.Errorf("%+v", r)
	}
	if r.file(t, "out/transcript.jsonl") != r.stdout {
		t.Errorf("transcript %q", r.file(t, "out/transcript.jsonl"))
	}
	r = b.agentTree("--model", "aider/gpt-5.5", "FAIL")
	if r.code != 125 || r.results.ExitCode != 3 || !strings.Contains(r.stderr, "the program ended without a result (exit code 3): out of luck") {
		t.Errorf("a failure: %+v", r)
	}
	c := b.mcp().must("sandbox_agent", args{"prompt": "Mend it.", "model": "aider/gpt-5.5"})
	if c.field("exit_code") != "0" || c.field("stdout") != "First line.\n\nMend it. done." {
		t.Errorf("by a tool: %s", c.Text)
	}
	for _, req := range m.Log() {
		if req.Header.Get("Authorization") != "Bearer "+realKey {
			t.Errorf("request with %q", req.Header.Get("Authorization"))
		}
	}
	if r := b.in(b.mkdir("h/proj"), "agent", "aider", "one two", "SHOW"); r.code != 0 || r.stdout != "one two SHOW\n" {
		t.Errorf("arguments at a terminal: %+v", r)
	}
}

// TestAgentScript checks that a run can be tried without an agent's program, a credential and a model: the script has the
// prompt and the inputs, its words are not replaced, and its failure is the run's.
func TestAgentScript(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	b.prepareHome()
	b.extra = append(b.extra, "PATH=/usr/bin:/bin", "OPENAI_API_KEY=", "ANTHROPIC_API_KEY=")
	in := b.file("data.txt", "a\nb\n", 0o644)
	r := b.agentTree("--script", `wc -l < /in/data.txt; url=kept; echo "${url} {model}"; echo "$1" | grep -c 'the task; exit 9'`, "--in", in, "--max-cost", "1", "the task; exit 9")
	if r.code != 0 || r.stdout != "2\nkept {model}\n1\n" || r.results.ExitCode != 0 || r.results.Total != 0 {
		t.Errorf("%+v", r)
	}
	if r := b.agentTree("--script", "echo half; echo why >&2; exit 3", "task"); r.code != 125 || r.results.ExitCode != 3 || !strings.Contains(r.stderr, "exit code 3): why") {
		t.Errorf("a failure: %+v", r)
	}
	if r := b.demesne("agent", "run", "--script", "true", "--model", "opus", "task"); r.code != 125 || !strings.Contains(r.stderr, "cannot be combined with --model") {
		t.Errorf("with a model: %+v", r)
	}
	if r := b.demesne("agent", "run", "task"); r.code != 125 {
		t.Errorf("without a script there is no agent here: %+v", r)
	}
	job := strings.TrimSpace(b.demesne("agent", "run", "--background", "--script", "echo of a job", "task").stdout)
	if r := b.demesne("wait", job); r.code != 0 {
		t.Errorf("wait: %+v", r)
	}
	if r := b.demesne("logs", job); r.stdout != "of a job\n" {
		t.Errorf("logs: %+v", r)
	}
}
