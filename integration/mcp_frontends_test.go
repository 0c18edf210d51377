package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// cli runs demesne, which has to succeed, and returns its trimmed stdout.
func (b *box) cli(args ...string) string {
	b.Helper()
	r := b.demesne(args...)
	if r.code != 0 {
		b.Fatalf("demesne %q: %+v", args, r)
	}
	return strings.TrimSpace(r.stdout)
}

// notThere calls every tool that takes a sandbox, and checks that each answers that the sandbox does not exist.
func (c *mcpClient) notThere(sandbox, file string) {
	c.Helper()
	for tool, a := range map[string]args{
		"sandbox_exec": {"command": "cat /tmp/f"}, "sandbox_upload": {"src": file, "dst": "/tmp/g"}, "sandbox_download": {"src": "/tmp/f"},
		"sandbox_read": {"path": "/tmp/f"}, "sandbox_write": {"path": "/tmp/f", "content": "x"}, "sandbox_edit": {"path": "/tmp/f", "old_string": "a", "new_string": "b"},
		"sandbox_ls": {"path": "/tmp"}, "sandbox_glob": {"path": "/tmp", "pattern": "*"}, "sandbox_grep": {"path": "/tmp", "pattern": "x"},
		"sandbox_destroy": {},
	} {
		a["sandbox_id"] = sandbox
		want := fmt.Sprintf("attach to sandbox %s: find sandbox %q: no such sandbox\nhint: sandbox_list lists the sandboxes that there are", sandbox, sandbox)
		if r := c.call(tool, a); !r.IsError || r.Text != want {
			c.Errorf("%s of %s: %q, want %q", tool, sandbox, r.Text, want)
		}
	}
}

// TestEscapeM3Frontends checks that a model sees the sandboxes made by MCP and those shared with it (M3). It does not see the
// command line's, by id or name, running or stopped. Nor does it after a restart of the runner, or as a fork.
func TestEscapeM3Frontends(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_TOOLS=files")
	file := b.file("file", "text", 0o644)
	mine := b.cli("create", "--name", "mine")
	asleep := b.cli("create", "--name", "asleep")
	lent := b.cli("create", "--name", "lent", "--share", "mcp")
	for _, id := range []string{mine, asleep, lent} {
		b.cli("exec", id, "--", "sh", "-c", "echo private > /tmp/f")
	}
	b.cli("stop", asleep)

	c := b.mcp()
	models := c.must("sandbox_create", args{"name": "models"}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": models, "command": "echo public > /tmp/f"})
	fork := b.cli("fork", models)
	check := func(c *mcpClient) {
		t.Helper()
		for _, sandbox := range []string{mine, "mine", asleep, "asleep", fork} {
			c.notThere(sandbox, file)
		}
		for sandbox, want := range map[string]string{models: "public\n", "models": "public\n", lent: "private\n", "lent": "private\n"} {
			if r := c.must("sandbox_exec", args{"sandbox_id": sandbox, "command": "cat /tmp/f"}); r.field("stdout") != want {
				t.Errorf("%s has %q, want %q", sandbox, r.field("stdout"), want)
			}
			if r := c.must("sandbox_read", args{"sandbox_id": sandbox, "path": "/tmp/f"}); !strings.Contains(r.Text, strings.TrimSpace(want)) {
				t.Errorf("sandbox_read of %s: %q", sandbox, r.Text)
			}
		}
	}
	check(c)
	check(b.mcp()) // another server of the same user
	if r := c.call("sandbox_destroy", args{"sandbox_id": "lent"}); !r.IsError || !strings.Contains(r.Text, "shared") {
		t.Errorf("sandbox_destroy of one that was shared: %+v", r)
	}
	if r := c.call("sandbox_create", args{"name": "mine"}); !r.IsError || strings.Contains(r.Text, mine) {
		t.Errorf("the name is in use: %+v", r)
	}
	for _, want := range []string{"mine cli", "models mcp", "lent cli,mcp"} {
		name, frontend, _ := strings.Cut(want, " ")
		if fields := strings.Fields(lineOf(b.cli("ls"), name)); len(fields) < 3 || fields[2] != frontend {
			t.Errorf("ls says of %s: %q, want the frontend %s", name, fields, frontend)
		}
		if got := lineOf(b.cli("inspect", name), "frontend"); strings.Join(strings.Fields(got)[1:], " ") != frontend {
			t.Errorf("inspect says of %s: %q, want the frontend %s", name, got, frontend)
		}
	}
	var info struct{ Spec struct{ Frontend string } }
	if err := json.Unmarshal([]byte(b.cli("inspect", "--json", "models")), &info); err != nil || info.Spec.Frontend != "mcp" {
		t.Errorf("inspect --json: %+v %v", info, err)
	}

	kill(runners(true))
	eventually(t, "the sandboxes to be gone", func() bool { return len(named("demesne-init")) == 0 })
	check(c)
	check(b.mcp())
	for _, id := range []string{mine, asleep} {
		if got := b.cli("exec", id, "--", "cat", "/tmp/f"); got != "private" {
			t.Errorf("%s has %q afterwards", id, got)
		}
	}
	b.cli("rm", mine, asleep, lent, fork, models)
}

// lineOf returns the line of text that contains word as a field, or " ".
func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		for _, w := range strings.Fields(line) {
			if w == word {
				return line
			}
		}
	}
	return " "
}

// TestEscapeM6Keys checks that the same key means different sandboxes for a model and for the command line, and
// that neither replaces the other's (M6).
func TestEscapeM6Keys(t *testing.T) {
	b := newBox(t)
	mine := b.cli("create", "--key", "k")
	lent := b.cli("create", "--key", "lent")
	if r := b.demesne("create", "--key", "lent", "--share", "mcp"); r.code != 125 || !strings.Contains(r.stderr, `share: created without it, requested "mcp"`) {
		t.Errorf("%s was not shared, and is used though that was asked for: %+v", lent, r)
	}
	if again := b.cli("create", "--key", "lent", "--share", "mcp", "--replace"); again == lent {
		t.Errorf("%s was not replaced", lent)
	} else if lent = again; b.cli("create", "--key", "lent") != lent {
		t.Errorf("%s is shared, and is not used again", lent)
	}
	c := b.mcp()
	models := c.must("sandbox_create", args{"key": "k", "limits": args{"pids": 100}}).field("sandbox_id")
	r := c.must("sandbox_script", args{"key": "k", "command": "echo model > /tmp/f", "egress": "none", "limits": args{"pids": 100}})
	if other := c.must("sandbox_create", args{"key": "lent"}).field("sandbox_id"); models == mine || other == lent || r.IsError {
		t.Errorf("the model's sandboxes are %s and %s, the command line's %s and %s", models, other, mine, lent)
	} else {
		c.must("sandbox_destroy", args{"sandbox_id": other})
	}
	for range 2 {
		if got := b.cli("create", "--key", "k"); got != mine {
			t.Errorf("the command line's key leads to %s, was %s", got, mine)
		}
		if got := b.cli("exec", "--key", "k", "--", "sh", "-c", "cat /tmp/f 2>/dev/null || echo empty"); got != "empty" {
			t.Errorf("the command line's sandbox has %q", got)
		}
		if got := c.must("sandbox_exec", args{"sandbox_id": models, "command": "cat /tmp/f"}).field("stdout"); got != "model\n" {
			t.Errorf("the model's sandbox has %q", got)
		}
		b.cli("stop", mine, models)
	}
	b.cli("rm", mine, lent, models)
}

// TestEscapeM3Jobs checks that a model does not see a job of the command line (M3).
func TestEscapeM3Jobs(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	job := b.cli("run", "--background", "--", "sh", "-c", "echo private; sleep 3345")
	eventually(t, "the job", func() bool { return sleepers("3345") == 1 })
	for _, tool := range []string{"sandbox_status", "sandbox_wait", "sandbox_cancel"} {
		if r := c.call(tool, args{"job_id": job, "include_stdout_tail": true, "timeout_seconds": 1}); !r.IsError || !strings.HasPrefix(r.Text, "job not found: "+job+"\n") {
			t.Errorf("%s: %+v", tool, r)
		}
	}
	if r := c.ask("prompts/get", args{"name": "explain_job", "arguments": args{"job_id": job}}); !r.IsError || strings.Contains(string(r.Result), "private") {
		t.Errorf("explain_job: %+v %s", r, r.Result)
	}
	if sleepers("3345") != 1 {
		t.Error("the job was ended")
	}
	b.cli("cancel", job)
	models := c.must("sandbox_script", args{"command": "echo done", "background": true}).field("job_id")
	if r := b.mcp().must("sandbox_wait", args{"job_id": models}); !strings.Contains(r.Text, "done") {
		t.Errorf("the model's own, from another server: %+v", r)
	}
	b.cli("wait", "--timeout", "1m", models)
}

// TestEscapeM3Outputs checks that a model can read the outputs of MCP's runs, but not the command line's (M3). It tries them as
// resources, as inputs, and all at once.
func TestEscapeM3Outputs(t *testing.T) {
	b := newBox(t)
	b.cli("run", "--", "sh", "-c", "echo private > /out/f")
	c := b.mcp()
	models := c.must("sandbox_script", args{"command": "echo public > /out/f"}).field("output_dir")
	var mine string
	for _, name := range names(b.out) {
		if !strings.HasPrefix(name, ".") && name != filepath.Base(models) {
			mine = name
		}
	}
	if mine == "" {
		t.Fatal("the run of the command line left no output")
	}
	if r := c.ask("resources/list", args{}); !strings.Contains(string(r.Result), filepath.Base(models)+"/f") || strings.Contains(string(r.Result), mine) {
		t.Errorf("resources: %s", r.Result)
	}
	if r := c.ask("resources/read", args{"uri": "demesne://outputs/" + mine + "/f"}); r.Code == 0 {
		t.Errorf("resources/read: %s", r.Result)
	}
	b.extra = append(b.extra, "DEMESNE_ALLOWED_PATHS="+b.mkdir("work"))
	c = b.mcp()
	for _, a := range []args{{"files": []string{b.out + "/" + mine + "/f"}}, {"directories": []string{b.out + "/" + mine}}, {"directories": []string{b.out}}, {"directories": []string{b.out + "/.manifests"}}} {
		a["command"] = "find /in -type f | xargs cat"
		if r := c.call("sandbox_script", a); !r.IsError || !strings.Contains(r.Text, "DEMESNE_ALLOWED_PATHS") {
			t.Errorf("%v: %+v", a, r)
		}
	}
	if r := c.must("sandbox_script", args{"command": "cat /in/f", "files": []string{models + "/f"}}); r.field("stdout") != "public\n" {
		t.Errorf("its own: %+v", r)
	}
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": box, "command": "echo out > /tmp/f"})
	down := strings.TrimPrefix(c.must("sandbox_download", args{"sandbox_id": box, "src": "/tmp/f"}).Text, "downloaded: /tmp/f -> ")
	if r := c.must("sandbox_script", args{"command": "cat /in/f", "files": []string{down}}); r.field("stdout") != "out\n" {
		t.Errorf("a download: %+v", r)
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}

// TestMCPCall calls tools from a shell: texts and JSON as arguments, a failure of a tool, and what sandboxes print.
func TestMCPCall(t *testing.T) {
	b := newBox(t)
	call := func(words ...string) result { return b.demesne(append([]string{"mcp", "call"}, words...)...) }
	r := call("sandbox_script", `command=printf 'a=%s \033[31m' "$A"; exit 3`, `env:={"A": "b=c"}`, "timeout_seconds:=60")
	if r.code != 0 || !strings.HasPrefix(r.stdout, "exit_code: 3\n") || !strings.Contains(r.stdout, "\na=b=c ?[31m") || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	r = call("--json", "--tools", "code", "execute_code", "language=python", "code=print(6 * 7)")
	var got struct {
		StructuredContent struct{ Stdout string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 || got.StructuredContent.Stdout != "42\n" {
		t.Errorf("%v: %+v", err, r)
	}
	for want, words := range map[string][]string{
		`demesne-mcp: required argument "command" not found`: {"sandbox_script"}, "no tool \"execute_code\"\nhint: --tools adds sets": {"execute_code"}, "needs a tool": {},
		`argument "limits": not JSON: "x"`: {"sandbox_script", "limits:=x"}, "hint: such as command='ls -l' or ": {"sandbox_script", "ls"},
		"demesne-mcp: the tool failed": {"--json", "sandbox_script"}, "unknown": {"--nowhere"},
	} {
		if r := call(words...); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v", words, r)
		}
	}
}
