package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// realKey is the credential of the agents in these tests. It must reach the model's server, and no sandbox.
const realKey = "sk-real-6c1d7f-credential"

// fakeAgent is the row of a user's file for testdata/agent/agent.py. Its model has a price.
const fakeAgent = `{"agents":[{"name":"fake","command":"fake-agent","models":["fake/claude-sonnet-5"],"prefix":"fake/",
"headless":["{prompt}"],"resume":["--resume","{session}","{prompt}"],"format":"claude","context":"CONTEXT.txt",
"env":{"FAKE_URL":"{url}","FAKE_MODEL":"{model}","FAKE_CONFIG":"/in/.agent"},"config":{"servers.json":"{{servers}}"},
"servers":{"entry":"\"{name}\":\"{url}\"","join":","},
"api":{"port":8083,"usage":"messages","allow":["POST /v1/messages"]},
"credentials":[{"env":"FAKE_KEY","base":"http://127.0.0.1:1","base_env":"FAKE_BASE","header":"X-Api-Key","inside":{"FAKE_TOKEN":"{token}"}}],
"retry":{"attempts":3,"total":"1m","base":"1s","most":"2s","buffer":"100ms"}}]}`

// newAgentBox returns a box whose only agent is the fake one, with a model that follows script.
func newAgentBox(t *testing.T, script func(fixture.ModelRequest) fixture.Answer) (*box, *fixture.Model) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3")
	}
	b := newBox(t)
	program, err := os.ReadFile("testdata/agent/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	b.mkdir("prog")
	b.file("prog/fake-agent", string(program), 0o755)
	m := &fixture.Model{Script: script}
	url, stop := m.Start()
	t.Cleanup(stop)
	b.extra = append(b.extra, "PATH="+b.dir+"/prog:"+os.Getenv("PATH"), "DEMESNE_AGENTS_FILE="+b.file("agents.json", fakeAgent, 0o644),
		"FAKE_KEY="+realKey, "FAKE_BASE="+url, "DEMESNE_MCP_ALLOWLIST="+b.file("allowlist.json", "{}", 0o644), "DEMESNE_CODEX_ENABLED=false", "DEMESNE_CLAUDE_CODE_ENABLED=false")
	return b, m
}

// treeRun is the result of an agent, with the content of results.json.
type treeRun struct {
	result
	dir     string // of the run
	results treeResults
}

type treeResults struct {
	Tool     string        `json:"tool"`
	Name     string        `json:"name"`
	Depth    int           `json:"depth"`
	ExitCode int           `json:"exit_code"`
	Reason   string        `json:"reason"`
	Own      float64       `json:"own_usage_usd"`
	Total    float64       `json:"total_usage_usd"`
	Children []treeResults `json:"children"`
}

// agentTree runs demesne agent run to its end.
func (b *box) agentTree(args ...string) treeRun {
	b.Helper()
	before := names(b.out)
	r := treeRun{result: b.demesne(append([]string{"agent", "run"}, args...)...)}
	fresh := slices.DeleteFunc(names(b.out), func(name string) bool { return name[0] == '.' || slices.Contains(before, name) })
	if len(fresh) != 1 {
		b.Fatalf("directories %q: %+v", fresh, r.result)
	}
	r.dir = filepath.Join(b.out, fresh[0])
	text, err := os.ReadFile(r.dir + "/out/results.json")
	if err == nil {
		err = json.Unmarshal(text, &r.results)
	}
	if err != nil {
		b.Fatalf("results: %v: %+v", err, r.result)
	}
	return r
}

func (r *treeRun) file(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func shell(command string) fixture.Answer {
	return fixture.Answer{Calls: []fixture.ToolCall{{Run: command}}}
}

func childTool(name string, input map[string]any) fixture.Answer {
	return fixture.Answer{Calls: []fixture.ToolCall{{Name: "sandbox_" + name, Input: input}}}
}

// TestAgentRun runs an agent for two turns, in which it writes a file. It checks the conventions of its sandbox, the files
// of the run, and that the credential is nowhere but in the request to the model's server.
func TestAgentRun(t *testing.T) {
	b, m := newAgentBox(t, fixture.Steps(
		shell("cat /in/note.txt > /out/copy.txt; echo shared > /workspace/w; pwd; env; cat CONTEXT.txt; ls -la /in/.agent; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"),
		fixture.Answer{Text: "All is copied."}))
	r := b.agentTree("Copy the note.", "--in", b.file("note.txt", "a note\n", 0o644), "--criterion", "copy.txt exists")
	if r.code != 0 || r.stdout != "All is copied.\n" || r.results.ExitCode != 0 || r.results.Tool != "sandbox_agent" {
		t.Errorf("%+v", r)
	}
	if got := r.file(t, "out/copy.txt"); got != "a note\n" {
		t.Errorf("copied %q", got)
	}
	transcript := r.file(t, "out/transcript.jsonl")
	for _, want := range []string{"/workspace/.demesne-agents/" + filepath.Base(r.dir), "## Task", "Copy the note.", "copy.txt exists", "IS_SANDBOX=1", "demesne-agent-"} {
		if !strings.Contains(transcript, want) {
			t.Errorf("the transcript has no %q", want)
		}
	}
	if r.results.Total <= 0 || r.results.Total != r.results.Own {
		t.Errorf("cost %v, in all %v", r.results.Own, r.results.Total)
	}
	for _, name := range []string{"usage.json", "usage.jsonl", "stderr.log", "results.json"} {
		r.file(t, "out/"+name)
	}
	for _, req := range m.Log() {
		if req.Header.Get("X-Api-Key") != realKey {
			t.Errorf("request with the key %q", req.Header.Get("X-Api-Key"))
		}
	}
	b.nowhere(r.dir, realKey)
}

// TestAgentRunTerminal checks that a terminal shows the answer once, and that a file gets it in any case.
func TestAgentRunTerminal(t *testing.T) {
	b, _ := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "All is copied."} })
	term := b.terminal("agent", "run", "Copy the note.")
	if code := term.wait(); code != 0 || strings.Count(term.screen(), "All is copied.") != 1 {
		t.Errorf("exit %d: %q", code, term.screen())
	}
	cmd := b.command("/bin/sh", "-c", bin+"/demesne agent run 'Copy the note.' > "+b.dir+"/answer")
	term = b.terminalOf(cmd)
	code := term.wait()
	if answer, _ := os.ReadFile(b.dir + "/answer"); code != 0 || string(answer) != "All is copied.\n" || !strings.Contains(term.screen(), "All is copied.") {
		t.Errorf("exit %d: file %q, terminal %q", code, answer, term.screen())
	}
}

// nowhere checks that no file below dir has the text.
func (b *box) nowhere(dir, text string) {
	b.Helper()
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if content, _ := os.ReadFile(path); strings.Contains(string(content), text) {
				b.Errorf("%s has %q", path, text)
			}
		}
		return nil
	})
}

// TestAgentOut checks an output directory that the caller names, and that a run that was not started leaves nothing.
func TestAgentOut(t *testing.T) {
	b, _ := newAgentBox(t, fixture.Steps(shell("echo x > /out/x"), fixture.Answer{Text: "Done."}))
	if r := b.demesne("agent", "run", "--out", b.dir+"/new/out", "Work."); r.code != 0 || r.stdout != "Done.\n" {
		t.Errorf("%+v", r)
	}
	if got := strings.Join(names(b.dir+"/new/out"), " "); got != "results.json stderr.log transcript.jsonl usage.json usage.jsonl x" {
		t.Errorf("output: %s", got)
	}
	before := len(names(b.out))
	b.file("taken", "", 0o644)
	if r := b.demesne("agent", "run", "--out", b.dir+"/taken", "Work."); r.code != 125 || len(names(b.out)) != before {
		t.Errorf("%+v, %s", r, names(b.out))
	}
	if r := b.demesne("agent", "run", "--model", "zzz", "Work."); r.code != 125 || !strings.Contains(r.stderr, `model "zzz" unknown model (known: `) || len(names(b.out)) != before {
		t.Errorf("%+v, %s", r, names(b.out))
	}
}

// TestAgentChildren runs a parent with two child agents and a command that verifies their work: they share /in and
// /workspace, write to /out/child/NAME, find finished siblings, and what they use counts as the parent's.
func TestAgentChildren(t *testing.T) {
	child := fixture.Steps(shell("cat /in/note.txt; cat /in/previous-jobs/*/done; echo $(cat /workspace/n) > /out/done; echo 2 > /workspace/n"), fixture.Answer{Text: "Child done."})
	parent := fixture.Steps(
		shell("echo 1 > /workspace/n"),
		childTool("agent", map[string]any{"name": "one", "prompt": "CHILD"}),
		childTool("agent", map[string]any{"name": "two", "prompt": "CHILD"}),
		childTool("script", map[string]any{"name": "verify", "command": "grep . /in/previous-jobs/*/done; echo verified > /out/v"}),
		childTool("script", map[string]any{"name": "one", "command": "true"}),
		childTool("agent", map[string]any{"name": "online", "prompt": "CHILD", "egress": "package-managers"}),
		shell("cat /out/child/*/done /out/child/verify/v"),
		fixture.Answer{Text: "Parent done."})
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "CHILD") {
			return child(r)
		}
		return parent(r)
	})
	r := b.agentTree("Orchestrate.", "--in", b.file("note.txt", "a note\n", 0o644))
	if r.code != 0 || r.stdout != "Parent done.\n" {
		t.Fatalf("%+v", r.result)
	}
	transcript := r.file(t, "out/transcript.jsonl")
	for _, want := range []string{
		`/in/previous-jobs/one/done:1\n/in/previous-jobs/two/done:2`, "name: verify", "name: one", "Child done.",
		`child name \"one\" is already used in this sandbox`, `egress \"package-managers\" is not permitted`, `1\n2\nverified`,
	} {
		if !strings.Contains(transcript, want) {
			t.Errorf("the transcript has no %q", want)
		}
	}
	if strings.Contains(transcript, b.dir) {
		t.Error("the transcript has a path of the host")
	}
	if got := r.file(t, "out/child/two/transcript.jsonl"); !strings.Contains(got, `a note\n1`) {
		t.Errorf("the second child did not find the inputs and its sibling: %s", got)
	}
	var names []string
	total := r.results.Own
	for _, c := range r.results.Children {
		names, total = append(names, c.Name), total+c.Total
	}
	if got := strings.Join(names, " "); got != "one two verify" {
		t.Errorf("children: %s", got)
	}
	if diff := total - r.results.Total; diff > 1e-9 || diff < -1e-9 || r.results.Own >= r.results.Total {
		t.Errorf("own %v, total %v, sum %v", r.results.Own, r.results.Total, total)
	}
}

// TestAgentBox checks a child's persistent sandbox: it keeps its files between commands, shares the workspace, ends when
// it is destroyed, and no agent can use a sandbox of another caller.
func TestAgentBox(t *testing.T) {
	id, foreign := "", ""
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if len(r.Results) > 0 {
			for _, line := range strings.Split(r.Results[0], "\n") {
				if v, ok := strings.CutPrefix(line, "sandbox_id: "); ok {
					id = v
				}
			}
		}
		exec := func(id, command string) fixture.Answer {
			return childTool("exec", map[string]any{"sandbox_id": id, "command": command})
		}
		return fixture.Steps(
			childTool("create", map[string]any{"name": "box"}), exec(id, "echo kept > /tmp/f; echo out > /out/o; echo w > /workspace/w"), exec(id, "cat /tmp/f /workspace/w; exit 7"),
			exec(foreign, "id"), childTool("destroy", map[string]any{"sandbox_id": foreign}),
			childTool("destroy", map[string]any{"sandbox_id": id}), exec(id, "id"), childTool("destroy", map[string]any{"sandbox_id": id}),
			fixture.Answer{Text: "Done."})(r)
	})
	foreign = strings.TrimSpace(b.demesne("create").stdout)
	defer b.demesne("rm", foreign)
	r := b.agentTree("Work.")
	transcript := r.file(t, "out/transcript.jsonl")
	if r.code != 0 || !strings.Contains(transcript, `exit_code: 7\n---\nkept\nw`) {
		t.Errorf("%+v\n%s", r, transcript)
	}
	if n := strings.Count(transcript, "attach to sandbox "+id) + strings.Count(transcript, "attach to sandbox "+foreign); n != 4 {
		t.Errorf("%d refusals: %s", n, transcript)
	}
	if got := r.file(t, "out/child/box/o"); got != "out\n" {
		t.Errorf("output %q", got)
	}
}

// TestAgentResearch checks that research has no inputs, no workspace of its parent, and no siblings' output, and that the
// operator can forbid it.
func TestAgentResearch(t *testing.T) {
	script := func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "FIND") {
			return fixture.Steps(shell("ls -A /in /workspace; cat /in/note.txt /workspace/w /in/previous-jobs/*/*; cat CONTEXT.txt"), fixture.Answer{Text: "Found."})(r)
		}
		return fixture.Steps(
			shell("echo private > /workspace/w"),
			childTool("script", map[string]any{"name": "first", "command": "echo private > /out/p"}),
			childTool("research", map[string]any{"name": "web", "prompt": "FIND"}), fixture.Answer{Text: "Done."})(r)
	}
	b, _ := newAgentBox(t, script)
	r := b.agentTree("Ask.", "--in", b.file("note.txt", "private\n", 0o644), "--allow-research")
	got := r.file(t, "out/child/web/transcript.jsonl")
	if r.code != 0 || strings.Contains(got, "private") || !strings.Contains(got, "The network is open") || len(r.results.Children) != 2 {
		t.Errorf("%+v\n%s", r, got)
	}
	b.extra = append(b.extra, "DEMESNE_RESEARCH=false")
	r = b.agentTree("Ask.", "--allow-research")
	if got := r.file(t, "out/transcript.jsonl"); !strings.Contains(got, "tool 'sandbox_research' not found") {
		t.Errorf("%s", got)
	}
	if r := b.demesne("research", "FIND"); r.code != 125 || !strings.Contains(r.stderr, "research: research agents are disabled") {
		t.Errorf("%+v", r)
	}
}

// TestEscapeM11Research: an agent without a network starts a child that could carry its input to the whole network, by
// the tool, through a child of its own, and as a background job. No child starts.
func TestEscapeM11Research(t *testing.T) {
	research := func(more map[string]any) fixture.Answer {
		input := map[string]any{"name": "web", "prompt": "CARRY a private note"}
		maps.Copy(input, more)
		return childTool("research", input)
	}
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		switch {
		case strings.Contains(r.Prompt, "CARRY"):
			return fixture.Answer{Text: "It is out."}
		case strings.Contains(r.Prompt, "CHILD"):
			return fixture.Steps(research(nil), childTool("agent", map[string]any{"name": "wide", "prompt": "CARRY", "egress": "open"}), fixture.Answer{Text: "Done."})(r)
		}
		return fixture.Steps(research(nil), research(map[string]any{"background": true}),
			childTool("agent", map[string]any{"name": "child", "prompt": "CHILD", "egress": "none"}), fixture.Answer{Text: "Done."})(r)
	})
	r := b.agentTree("Ask.", "--in", b.file("note.txt", "private\n", 0o644))
	said := r.file(t, "out/transcript.jsonl") + r.file(t, "out/child/child/transcript.jsonl")
	if r.code != 0 || strings.Count(said, "tool 'sandbox_research' not found") != 3 || !strings.Contains(said, "egress 'open' is not permitted") {
		t.Errorf("%+v\n%s", r, said)
	}
	for _, q := range m.Log() {
		if strings.Contains(q.Prompt, "CARRY") {
			t.Errorf("a model was asked %q", q.Prompt)
		}
	}
}

// endless is a model that lets its agent call a tool for ever.
func endless(fixture.ModelRequest) fixture.Answer { return shell("sleep 0.05") }

// TestAgentBudgets checks that each bound ends a run with its reason.
func TestAgentBudgets(t *testing.T) {
	for name, c := range map[string]struct{ flag, value, reason string }{
		"cost":  {"--max-cost", "0.002", "budget: cost: $"},
		"turns": {"--max-turns", "3", "budget: turns: 4 of 3"},
		"time":  {"--timeout", "1.5s", "budget: time: 1.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			b, m := newAgentBox(t, endless)
			r := b.agentTree("Loop.", c.flag, c.value)
			if r.code != 137 || !strings.HasPrefix(r.results.Reason, c.reason) || !strings.Contains(r.stderr, c.reason) {
				t.Errorf("%+v", r)
			}
			if n := len(m.Log()); name == "turns" && n > 7 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestAgentBudgetOfParent checks that a child cannot have a bigger budget than its parent: the parent's bound ends both.
func TestAgentBudgetOfParent(t *testing.T) {
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "CHILD") {
			return endless(r)
		}
		return childTool("agent", map[string]any{"name": "greedy", "prompt": "CHILD", "max_cost_usd": 100, "max_turns": 1000})
	})
	r := b.agentTree("Orchestrate.", "--max-turns", "5")
	if r.code != 137 || r.results.Reason != "budget: turns: 6 of 5" || len(r.results.Children) != 1 || r.results.Children[0].ExitCode != 137 {
		t.Errorf("%+v", r)
	}
}

// TestAgentRateLimit checks that an agent that met a rate limit resumes its session in the same sandbox, with one
// transcript, and that it gives up after the bound of attempts.
func TestAgentRateLimit(t *testing.T) {
	work := fixture.Steps(shell("echo one >> /out/log; echo kept > /tmp/kept"), shell("cat /tmp/kept >> /out/log"), fixture.Answer{Text: "Done."})
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if r.N == 1 || r.N == 3 {
			return fixture.Answer{Status: 429, Header: map[string][]string{"Retry-After": {"1"}}}
		}
		return work(r)
	})
	r := b.agentTree("Work.")
	if r.code != 0 || r.stdout != "Done.\n" || r.file(t, "out/log") != "one\nkept\n" || strings.Count(r.stderr, "waiting until") != 2 {
		t.Errorf("%+v, log %q", r, r.file(t, "out/log"))
	}
	if got := strings.Count(r.file(t, "out/transcript.jsonl"), `"subtype": "init"`); got != 3 {
		t.Errorf("%d executions in the transcript", got)
	}
	b, _ = newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Status: 529} })
	if r := b.agentTree("Work."); r.code == 0 || !strings.HasPrefix(r.results.Reason, "rate limit: gave up after 3 attempts") {
		t.Errorf("%+v", r)
	}
}

// TestAgentServerFault checks that the user reads what the model's server says of a fault of its own, while the agent still runs
// and as the reason of its end, and that a server that repeats the credential does not get it into any file.
func TestAgentServerFault(t *testing.T) {
	b, _ := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Status: 500} })
	r := b.agentTree("Work.")
	const said = "the model's server answered the last request with status 500 ("
	if r.code == 0 || !strings.Contains(r.stderr, "note: "+said) || !strings.Contains(r.results.Reason, said) {
		t.Errorf("%+v", r)
	}
	b.nowhere(r.dir, realKey)
}

// TestAgentRenewed checks that a run goes on when its credential was replaced on the host while it ran: the server refuses
// the old one, and the routes of the same sandbox get the new one.
func TestAgentRenewed(t *testing.T) {
	const fresh = "sk-fresh-19ab-credential"
	work := fixture.Steps(shell("echo one >> /out/log"), shell("echo two >> /out/log"), fixture.Answer{Text: "Done."})
	b, m := newAgentBox(t, nil)
	login := b.file("login", realKey+"\n", 0o600)
	m.Script = func(r fixture.ModelRequest) fixture.Answer {
		if r.N == 1 {
			os.WriteFile(login, []byte(fresh+"\n"), 0o600)
		}
		if r.N >= 1 && r.Header.Get("X-Api-Key") != fresh {
			return fixture.Answer{Status: 401}
		}
		return work(r)
	}
	rows := strings.Replace(fakeAgent, `{"env":"FAKE_KEY",`, `{"file":"`+login+`","kind":"text",`, 1)
	b.file("agents.json", rows, 0o644)
	r := b.agentTree("Work.")
	if r.code != 0 || r.stdout != "Done.\n" || r.file(t, "out/log") != "one\ntwo\n" {
		t.Errorf("%+v", r)
	}
	b.nowhere(r.dir, fresh)
	b.nowhere(r.dir, realKey)
	// Without a new one the run fails, and says why.
	m.Script = func(r fixture.ModelRequest) fixture.Answer { return fixture.Answer{Status: 401} }
	if r := b.agentTree("Work."); r.code == 0 || !strings.Contains(r.results.Reason, "the server rejected the token in "+login) {
		t.Errorf("%+v", r)
	}
}

// TestAgentNoResult checks that a program that ends without a result failed, whatever its exit code.
func TestAgentNoResult(t *testing.T) {
	for prompt, want := range map[string]struct {
		code   int
		reason string
	}{
		"SILENT": {125, "the program ended without a result (exit code 0)"},
		"CRASH":  {3, "the program ended without a result (exit code 3)"},
	} {
		b, _ := newAgentBox(t, nil)
		r := b.agentTree(prompt)
		if r.code != max(want.code, 125) && r.code != want.code || !strings.HasPrefix(r.results.Reason, want.reason) || !strings.Contains(r.stderr, want.reason) {
			t.Errorf("%s: %+v", prompt, r)
		}
	}
}

// TestAgentPlanted checks that a malicious agent cannot lead the host's own writes elsewhere: links at the names of
// results and of a child's directory are replaced or refused.
func TestAgentPlanted(t *testing.T) {
	b, _ := newAgentBox(t, nil)
	victim := b.file("victim", "mine", 0o644)
	b.mkdir("victims")
	script := fixture.Steps(
		shell("cd /out && ln -s "+victim+" results.json && ln -s "+victim+" usage.json && mkdir transcript.jsonl && mkdir -p usage.jsonl/deep && chmod 0 usage.jsonl && ln -s "+b.dir+"/victims child; ls -la /out"),
		childTool("script", map[string]any{"name": "a", "command": "echo x > /out/planted"}),
		childTool("agent", map[string]any{"name": "b", "prompt": "x"}),
		shell("rm /out/child && rm -rf /workspace/.demesne-agents && ln -s "+b.dir+"/victims /workspace/.demesne-agents"),
		childTool("agent", map[string]any{"name": "c", "prompt": "x"}),
		fixture.Answer{Text: "Done."})
	m := &fixture.Model{Script: script}
	url, stop := m.Start()
	t.Cleanup(stop)
	b.extra = append(b.extra, "FAKE_BASE="+url)
	r := b.agentTree("Attack.")
	if r.code != 0 || strings.Count(r.file(t, "out/transcript.jsonl"), "a sandbox made an entry of this name") != 2 {
		t.Errorf("%+v\n%s", r, r.file(t, "out/transcript.jsonl"))
	}
	if !strings.Contains(r.file(t, "out/transcript.jsonl"), `in the workspace: `) {
		t.Errorf("the link in the workspace was used: %s", r.file(t, "out/transcript.jsonl"))
	}
	if err := os.Chmod(r.dir+"/out/usage.jsonl.sandbox", 0o700); err != nil {
		t.Error(err)
	}
	if got := r.file(t, "out/usage.jsonl"); !strings.Contains(got, "{") {
		t.Errorf("usage.jsonl is %q", got)
	}
	if got, _ := os.ReadFile(victim); string(got) != "mine" || len(names(b.dir+"/victims")) != 0 {
		t.Errorf("victim %q, %s", got, names(b.dir+"/victims"))
	}
}

// TestAgentMany runs 20 agents at once: none fails.
func TestAgentMany(t *testing.T) {
	b, _ := newAgentBox(t, fixture.Steps(shell("sleep 1; echo x > /out/x"), fixture.Answer{Text: "Done."}))
	failed := make(chan result, 20)
	for range 20 {
		go func() { failed <- b.demesne("agent", "run", "Work.") }()
	}
	for range 20 {
		if r := <-failed; r.code != 0 || r.stdout != "Done.\n" {
			t.Errorf("%+v", r)
		}
	}
}

// TestAgentDepth checks that agents that start agents without end are stopped.
func TestAgentDepth(t *testing.T) {
	b, m := newAgentBox(t, fixture.Steps(childTool("agent", map[string]any{"name": "a", "prompt": "Again."}), fixture.Answer{Text: "Done."}))
	r := b.agentTree("Again.")
	depth := 0
	for c := r.results.Children; len(c) > 0; c = c[0].Children {
		depth = c[0].Depth
	}
	if r.code != 0 || depth != 8 || len(m.Log()) != 18 {
		t.Errorf("depth %d, %d requests: %+v", depth, len(m.Log()), r.result)
	}
}

// TestAgentManyChildren checks that the number of an agent's children is not bounded by what one sandbox can mount: it has the
// outputs of the last 64.
func TestAgentManyChildren(t *testing.T) {
	const n = 70
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if done := len(r.Results); done < n {
			return childTool("script", map[string]any{"name": fmt.Sprintf("c-%d", done), "command": "ls /in/previous-jobs 2>/dev/null | wc -l > /out/n"})
		}
		return fixture.Answer{Text: "Done."}
	})
	r := b.agentTree("Work.")
	if r.code != 0 || len(r.results.Children) != n || r.file(t, fmt.Sprintf("out/child/c-%d/n", n-1)) != "64\n" {
		t.Errorf("%d children: %+v", len(r.results.Children), r.result)
	}
}
