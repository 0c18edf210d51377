package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// TestTextSaysAll checks that the text form of a result has what its structured form has: some clients show nothing else.
func TestTextSaysAll(t *testing.T) {
	ended := &session.RunResult{Job: "u-1", OutputDir: "/o/u-1", Result: &runner.Result{
		ExitCode: 137, Reason: runner.OOM, Detail: "more than 100 MiB\nof memory", Restarted: true, MissingSecrets: []string{"TOKEN"},
		Denied: []runner.Blocked{{Host: "evil.test", Port: 443, Reason: "no rule", Times: 2}},
	}, Stdout: session.Tail{Text: "hi\n", Bytes: 3}}
	d := &desk{result: ended, jobs: map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Succeeded}, Outcome: ended, Cost: &session.Cost{Own: 0.1, Total: 0.25}}}}
	s, _ := serverFor(t, d, withModels)
	cs := client(t, s, nil)
	for _, c := range []struct {
		tool, args string
		want       []string
	}{
		{"sandbox_script", `{"command":"x"}`, nil}, {"sandbox_exec", `{"sandbox_id":"s","command":"x"}`, nil},
		{"sandbox_agent", `{"prompt":"x"}`, []string{"cost_usd: 0.5000", "total_usage_usd: 0.7500"}},
		{"sandbox_wait", `{"job_id":"j"}`, []string{"cost_usd: 0.1000", "total_usage_usd: 0.2500"}},
		{"sandbox_status", `{"job_id":"j"}`, []string{"cost_usd: 0.1000"}},
	} {
		text, _, isError := callTool(t, cs, c.tool, c.args)
		head, _, _ := strings.Cut(text, "---")
		for _, want := range append(c.want, "exit_code: 137", "reason: oom", "message: more than 100 MiB of memory", "denied: ", "evil.test", "restarted: true", "missing_secrets: TOKEN") {
			if isError || !strings.Contains(head, want) {
				t.Errorf("%s has no %q: %q", c.tool, want, head)
			}
		}
	}
}

// TestStepsSkipped checks that the commands behind a failed one are there as skipped, without an exit code.
func TestStepsSkipped(t *testing.T) {
	failed := &session.RunResult{Result: &runner.Result{ExitCode: 4, Reason: runner.Exited}, Step: 1, Failed: true}
	all := *failed
	all.Steps = []*session.RunResult{{Result: &runner.Result{Reason: runner.Exited}}, failed}
	s, _ := serverFor(t, &desk{result: &all}, func(o *Options) { o.Sets = []string{setSandboxes} })
	cs := client(t, s, nil)
	for _, tool := range []string{"sandbox_script", "sandbox_exec"} {
		text, structured, _ := callTool(t, cs, tool, `{"sandbox_id":"s","commands":[{"shell":"a"},{"shell":"b"},{"shell":"c"},{"argv":["d"]}]}`)
		list := structured["commands"].([]any)
		if len(list) != 4 || !strings.Contains(text, "commands[2]: skipped\ncommands[3]: skipped\n") {
			t.Fatalf("%s: %q %v", tool, text, list)
		}
		for i, one := range list {
			one := one.(map[string]any)
			if skipped := i > 1; one["skipped"] == true != skipped || (one["exit_code"] == nil) != skipped || (one["stdout"] == nil) != skipped {
				t.Errorf("%s: command %d: %v", tool, i, one)
			}
		}
	}
}

// TestPackageArgument checks that one name is understood without a warning.
func TestPackageArgument(t *testing.T) {
	for _, args := range []args{{"session_id": "s", "package": "numpy"}, {"session_id": "s", "packages": []any{"numpy"}}} {
		if why := unread(installTool().in, args, false); why != "" {
			t.Errorf("%v: %s", args, why)
		}
	}
}

// TestToolsChanged checks what clients of the first protocols learn about the list of tools.
func TestToolsChanged(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	r := clientOf(t, s, nil, "2025-06-18").InitializeResult()
	if tools := r.Capabilities.Tools; tools == nil || !tools.ListChanged {
		t.Errorf("%+v", r.Capabilities.Tools)
	}
}

// TestOutputURI checks which copies on the host have a URI: regular files of outputs that the caller may see.
func TestOutputURI(t *testing.T) {
	root := t.TempDir()
	makeTree(t, root, "run/downloads/a b.txt", "run/dir/", "other/f")
	if err := os.Symlink("/etc/passwd", root+"/run/link"); err != nil {
		t.Fatal(err)
	}
	o := outputs{root: root, mine: func(name string) bool { return name == "run" }}
	for path, want := range map[string]string{
		root + "/run/downloads/a b.txt": outputScheme + "run/downloads/a%20b.txt", root + "/run/dir": "", root + "/run/link": "", root + "/run/none": "",
		root + "/other/f": "", filepath.Dir(root): "", "/etc/passwd": "", "": "",
	} {
		if got := o.uri(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := (outputs{}).uri("/etc/passwd"); got != "" {
		t.Errorf("without outputs: %q", got)
	}
}

// TestHintsNested checks that an agent, which has no user to ask, gets no such hint.
func TestHintsNested(t *testing.T) {
	for nested, want := range map[bool]bool{false: true, true: false} {
		s, _ := serverFor(t, &desk{}, func(o *Options) { o.Nested = nested })
		text, _, _ := callTool(t, client(t, s, nil), "sandbox_wait", `{"job_id":"none"}`)
		if strings.Contains(text, "hint:") != want {
			t.Errorf("nested %t: %q", nested, text)
		}
	}
}
