package integration

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// TestAgentMCPVerifier gives the output of one agent to a second one, which checks it, and to a script. The first one also
// runs as a job.
func TestAgentMCPVerifier(t *testing.T) {
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "VERIFY") {
			return fixture.Steps(shell("cat /in/out/sum /in/data.txt; touch /in/out/x"), fixture.Answer{Text: "Verified."})(r)
		}
		return fixture.Steps(shell("wc -l < /in/data.txt > /out/sum"), fixture.Answer{Text: "tab\there"})(r)
	})
	data := b.file("data.txt", "1\n2\n", 0o644)
	c := b.mcp()
	first := c.must("sandbox_agent", args{"prompt": "Count.", "files": []string{data}, "output_path": "/out/sum", "success_criteria": []string{"it is a number"}})
	if first.field("stdout") != "tab\there" || first.field("exit_code") != "0" || first.dollars("cost_usd") <= 0 || first.Fields["per_model_tokens"] == nil {
		t.Errorf("%s", first.Result)
	}
	for _, want := range []string{"exit_code: 0\noutput_dir: " + first.field("output_dir") + "\njob_id: " + first.field("job_id") + "\ncost_usd: 0.00", "\n---\ntab\there\n---stderr---\n"} {
		if !strings.Contains(first.Text, want) {
			t.Errorf("the text has no %q: %s", want, first.Text)
		}
	}
	files, _ := json.Marshal(first.Fields["outputs"])
	if !strings.Contains(string(files), `"name":"sum"`) {
		t.Errorf("outputs: %s", files)
	}
	id := c.must("sandbox_agent", args{"prompt": "Count.", "files": []string{data}, "background": true}).field("job_id")
	done := c.must("sandbox_wait", args{"job_id": id})
	if done.field("status") != "succeeded" || done.field("result_text") != "tab\there" || done.field("exit_code") != "0" || readFile(t, done.field("output_path")+"/sum") != "2\n" {
		t.Errorf("%s", done.Result)
	}
	if r := c.must("sandbox_usage_report", args{"job_id": id}); r.field("total_cost_usd") != done.field("total_usage_usd") || r.dollars("total_cost_usd") <= 0 {
		t.Errorf("%s, want %v", r.Result, done.field("total_usage_usd"))
	}
	second := c.must("sandbox_agent", args{"prompt": "VERIFY", "directories": []string{first.field("output_dir")}, "files": []string{data}})
	if got := readFile(t, second.field("output_dir")+"/transcript.jsonl"); !strings.Contains(got, `2\n1\n2\n`) || !strings.Contains(got, "Read-only file system") {
		t.Errorf("transcript of the verifier: %s", got)
	}
	if r := c.must("sandbox_script", args{"command": "cat /in/sum", "egress": "none", "files": []string{first.field("output_dir") + "/sum"}}); r.field("stdout") != "2\n" {
		t.Errorf("%s", r.Result)
	}
}

// TestAgentMCPUsage checks which runs sandbox_usage_report reads, and that an agent cannot plant another report.
func TestAgentMCPUsage(t *testing.T) {
	b, _ := newAgentBox(t, fixture.Steps(shell(`mkdir -p /out/sidecar-results /out/out
for d in /out /out/sidecar-results /out/out; do
  echo '{"cost_usd":99,"per_model":{"opus":{"input_tokens":99000000,"output_tokens":1,"cost_usd":99}}}' > $d/usage.json; done`), fixture.Answer{Text: "Done."}))
	c := b.mcp()
	r := c.must("sandbox_agent", args{"prompt": "Plant."})
	dir := r.field("output_dir")
	for _, a := range []args{{"output_dir": dir}, {"output_dir": filepath.Dir(dir)}, {"job_id": r.field("job_id")}, {"job_id": "nope", "output_dir": dir + "/"}} {
		usage := c.must("sandbox_usage_report", a)
		if usage.field("total_cost_usd") != r.field("cost_usd") || usage.Fields["by_child"] != nil || !strings.HasPrefix(usage.Text, "total_cost_usd: 0.00") {
			t.Errorf("%v: %s", a, usage.Result)
		}
	}
	script := c.must("sandbox_script", args{"command": "echo > /out/x"})
	for _, e := range []struct {
		a    args
		want string
	}{
		{args{}, "job_id or output_dir is required"},
		{args{"output_dir": "/etc"}, `output_dir "/etc" is outside OutputRoot "` + b.out + `"`},
		{args{"output_dir": b.out}, `is outside OutputRoot`},
		{args{"output_dir": b.out + "/../../x"}, `is outside OutputRoot`},
		{args{"job_id": "nope"}, "job not found: nope"},
		{args{"job_id": "../.."}, "job not found: ../.."},
		{args{"output_dir": script.field("output_dir")}, "no agent ran there"},
	} {
		if r := c.call("sandbox_usage_report", e.a); !r.IsError || !strings.Contains(r.Text, e.want) {
			t.Errorf("%v: %s", e.a, r.Text)
		}
	}
}

// TestAgentMCPBudget checks that a budget ends an agent with its reason in the result, and a job's in its message.
func TestAgentMCPBudget(t *testing.T) {
	b, _ := newAgentBox(t, endless)
	b.extra = append(b.extra, "DEMESNE_MAX_COST_USD=0.002")
	c := b.mcp()
	r := c.must("sandbox_agent", args{"prompt": "Loop."}) // without max_cost_usd the ceiling bounds it
	if r.field("exit_code") != "137" || r.field("reason") != "budget" || !strings.HasPrefix(r.field("message"), "budget: cost: $") {
		t.Errorf("%s", r.Result)
	}
	id := c.must("sandbox_agent", args{"prompt": "Loop.", "max_turns": 2, "background": true}).field("job_id")
	if r := c.must("sandbox_wait", args{"job_id": id}); r.field("exit_code") != "137" || r.field("message") != "budget: turns: 3 of 2" || r.dollars("cost_usd") <= 0 {
		t.Errorf("%s", r.Result)
	}
	if r := c.call("sandbox_agent", args{"prompt": "Loop.", "max_cost_usd": 1}); !r.IsError || !strings.Contains(r.Text, "the ceiling (DEMESNE_MAX_COST_USD)") {
		t.Errorf("%s", r.Text)
	}
}

// TestAgentMCPResearch checks that sandbox_research ignores inputs and egress: the whole network, and no files.
func TestAgentMCPResearch(t *testing.T) {
	b, m := newAgentBox(t, fixture.Steps(shell("ls -A /in /workspace; cat CONTEXT.txt"), fixture.Answer{Text: "Found."}))
	c := b.mcp()
	secret := b.file("note.txt", "private", 0o644)
	r := c.must("sandbox_research", args{"prompt": "Find.", "files": []string{secret}, "directories": []string{b.dir}, "egress": "none"})
	got := readFile(t, r.field("output_dir")+"/transcript.jsonl")
	if r.field("stdout") != "Found." || strings.Contains(got, "note.txt") || !strings.Contains(got, "The network is open") || len(m.Log()) != 2 {
		t.Errorf("%s\n%s", r.Result, got)
	}
	b.extra = append(b.extra, "DEMESNE_RESEARCH=false")
	if r := b.once("sandbox_research", args{"prompt": "Find."}); !r.IsError || !strings.Contains(r.Text, "research agents are disabled on this machine") {
		t.Errorf("%s", r.Text)
	}
	b.extra = append(b.extra, "DEMESNE_RESEARCH=ask")
	if r := b.once("sandbox_research", args{"prompt": "Find."}); !r.IsError || !strings.Contains(r.Text, "this client cannot ask one") {
		t.Errorf("%s", r.Text)
	}
}

// TestAgentMCPModels checks the live list of models, and what the tools say without an agent.
func TestAgentMCPModels(t *testing.T) {
	b, _ := newAgentBox(t, nil)
	models := func() any {
		var list struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Properties map[string]map[string]any }
			}
		}
		c := b.mcp()
		defer c.close()
		if err := json.Unmarshal(c.ask("tools/list", nil).Result, &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if tool.Name == "sandbox_agent" {
				return tool.InputSchema.Properties["model"]["enum"]
			}
		}
		t.Fatal("no sandbox_agent")
		return nil
	}
	with := func(vars ...string) { b.extra = append(b.extra, vars...) }
	says := func(a args, want string) {
		t.Helper()
		if r := b.once("sandbox_agent", a); !r.IsError || r.Text != want && !strings.HasPrefix(r.Text, want+" ") {
			t.Errorf("%v: %q, want %q", a, r.Text, want)
		}
	}
	names, _ := json.Marshal(models())
	if string(names) != `["fake/claude-sonnet-5"]` {
		t.Errorf("models: %s", names)
	}
	says(args{}, `required argument "prompt" not found`)
	says(args{"prompt": " "}, "prompt is required")
	says(args{"prompt": "x", "model": "zzz"}, `model "zzz" unknown model (known: copilot/gpt-5.4-mini, copilot/gpt-5.5, fable, fake/claude-sonnet-5, gemini-2.5-flash,`)
	says(args{"prompt": "x", "model": "opus"}, `model "opus" is unavailable because agent provider "claude-code" is disabled`)
	says(args{"prompt": "x", "egress": "open"}, `egress 'open' is not permitted; use sandbox_research for unrestricted egress`)
	with("FAKE_KEY=", "DEMESNE_GEMINI_CLI_ENABLED=false", "DEMESNE_OPENCODE_ENABLED=false")
	if m := models(); m != nil {
		t.Errorf("models without a credential: %v", m)
	}
	says(args{"prompt": "x"}, "no agent providers are enabled; enable DEMESNE_CODEX_ENABLED or DEMESNE_CLAUDE_CODE_ENABLED")
	with("DEMESNE_CLAUDE_CODE_ENABLED=1")
	says(args{"prompt": "x"}, "DEMESNE_CLAUDE_CODE_OAUTH_TOKEN is required for sandbox_agent (run `claude setup-token` to obtain one)")
	with("DEMESNE_CODEX_ENABLED=perhaps")
	if r := b.finish(b.command("demesne-mcp")); r.code != 1 || !strings.HasPrefix(r.stderr, "demesne-mcp: DEMESNE_CODEX_ENABLED must be a valid boolean: ") {
		t.Errorf("%+v", r)
	}
	with("DEMESNE_CODEX_ENABLED=0", "DEMESNE_MAX_COST_USD=-1")
	if r := b.finish(b.command("demesne-mcp")); r.code != 1 || !strings.HasPrefix(r.stderr, `demesne-mcp: DEMESNE_MAX_COST_USD "-1": `) {
		t.Errorf("%+v", r)
	}
}

// TestAgentMCPKilled kills the server while an agent with children runs. All of them end, and newBox finds nothing left.
// A client that cancels the call has the same effect.
func TestAgentMCPKilled(t *testing.T) {
	b, m := newAgentBox(t, waitingTree)
	c := b.mcp()
	_, _ = c.start("sandbox_agent", args{"prompt": "Wait."})
	asleep(t, m)
	c.cmd.Process.Signal(syscall.SIGKILL)
	eventually(t, "the agents to be gone", func() bool { return sleepers("1000")+len(named("demesne-agent")) == 0 })
	c = b.mcp()
	before := len(m.Log())
	id, _ := c.start("sandbox_agent", args{"prompt": "Wait."})
	eventually(t, "the agents to work", func() bool { return len(m.Log()) >= before+6 })
	c.tell("notifications/cancelled", args{"requestId": id})
	eventually(t, "the agents to be gone", func() bool { return sleepers("1000")+len(named("demesne-agent")) == 0 })
}

// TestAgentMCPPrograms runs the real programs over MCP: two turns that write a file, and a child.
func TestAgentMCPPrograms(t *testing.T) {
	for model, provider := range map[string]string{"sonnet": "ANTHROPIC", "gpt-5.5": "OPENAI"} {
		t.Run(model, func(t *testing.T) {
			agentOf(t, model) // installed?
			b := newBox(t)
			m := &fixture.Model{Script: func(r fixture.ModelRequest) fixture.Answer {
				if strings.Contains(string(r.Body), "CHILD-TASK") && !strings.Contains(string(r.Body), "PARENT-TASK") {
					return fixture.Steps(shell("echo child > /out/c"), fixture.Answer{Text: "child done"})(r)
				}
				return fixture.Steps(
					shell("cat /in/data.txt > /out/copy"),
					childTool("agent", map[string]any{"name": "helper", "prompt": "CHILD-TASK"}),
					shell("cat /out/child/helper/c >> /out/copy"),
					fixture.Answer{Text: "all done"})(r)
			}}
			url, stop := m.Start()
			t.Cleanup(stop)
			if provider == "OPENAI" {
				url += "/v1"
			}
			b.extra = append(b.extra, "PATH="+programsPath(), provider+"_API_KEY="+realKey, provider+"_BASE_URL="+url, "DEMESNE_MCP_ALLOWLIST="+b.file("allowlist.json", "{}", 0o644))
			c := b.mcp()
			r := c.must("sandbox_agent", args{"prompt": "PARENT-TASK", "files": []string{b.file("data.txt", "data\n", 0o644)}})
			if r.field("exit_code") != "0" || r.field("stdout") != "all done" || r.dollars("total_usage_usd") <= r.dollars("cost_usd") {
				t.Fatalf("%s\n%s", r.Result, c.errs.String())
			}
			if got := readFile(t, r.field("output_dir")+"/copy"); got != "data\nchild\n" {
				t.Errorf("copy: %q", got)
			}
			usage := c.must("sandbox_usage_report", args{"output_dir": r.field("output_dir")})
			if children, _ := json.Marshal(usage.Fields["by_child"]); usage.field("total_cost_usd") != r.field("total_usage_usd") || !strings.Contains(string(children), `"name":"helper"`) {
				t.Errorf("%s", usage.Result)
			}
			b.nowhere(filepath.Dir(r.field("output_dir")), realKey)
		})
	}
}
