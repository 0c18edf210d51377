package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/images"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// typical are the options of a server of an ordinary user, with credentials for agents.
func typical(o *Options) {
	*o = Options{
		Version: "1", Mounts: Mounts{roots: []string{"/home/user/src/project"}, outputs: "/home/user/.demesne/out", mine: func(string) bool { return true }},
		Images: []string{"host", "node", "python", "go", "anaconda", "debian", "ubuntu", "alpine"}, Image: "host", Egress: []string{"none", "package-managers"},
		Models: []string{"sonnet", "opus", "fable", "haiku", "gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5", "gpt-5.4-mini"},
	}
}

func listOfTools(t *testing.T, s *Server) (raw string, tools []*sdk.Tool) {
	t.Helper()
	list, err := client(t, s, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), list.Tools
}

// TestToolListBound holds the bound of the default list: 3,000 tokens of 4 bytes. Each model pays for it in each
// conversation.
func TestToolListBound(t *testing.T) {
	s, _ := serverFor(t, &desk{}, typical)
	raw, tools := listOfTools(t, s)
	if len(raw) > 12000 {
		t.Errorf("tools/list has %d bytes", len(raw))
		for _, l := range tools {
			one, _ := json.Marshal(l)
			in, _ := json.Marshal(l.InputSchema)
			out, _ := json.Marshal(l.OutputSchema)
			t.Logf("%s %d, in %d, out %d, description %d", l.Name, len(one), len(in), len(out), len(l.Description))
		}
	}
}

// TestToolsNamed checks that instructions, prompts and descriptions name no tool that the server does not offer, and that
// each argument that a model cannot guess has a description.
func TestToolsNamed(t *testing.T) {
	word := regexp.MustCompile(`sandbox_[a-z_]*[a-z]`)
	for name, change := range map[string]func(*Options){
		"default": typical, "sets": func(o *Options) { typical(o); o.Sets = ToolSets() }, "nested": func(o *Options) { typical(o); o.Nested = true },
	} {
		s, _ := serverFor(t, &desk{}, change)
		raw, tools := listOfTools(t, s)
		known := []string{"sandbox_id"}
		for _, l := range tools {
			known = append(known, l.Name)
			for arg, schema := range l.InputSchema.(map[string]any)["properties"].(map[string]any) {
				known = append(known, arg)
				if strings.HasSuffix(arg, "_id") && l.Name != "sandbox_cancel" && l.Name != "sandbox_destroy" && schema.(map[string]any)["description"] == "" {
					t.Errorf("%s: %s: %s has an empty description", name, l.Name, arg)
				}
			}
		}
		for _, w := range word.FindAllString(raw+s.opts.instructions(), -1) {
			if !slices.Contains(known, w) {
				t.Errorf("%s: %s is named and not offered", name, w)
			}
		}
	}
}

// TestDescriptions checks the facts that a model needs before its first call.
func TestDescriptions(t *testing.T) {
	s, _ := serverFor(t, &desk{}, typical)
	_, tools := listOfTools(t, s)
	says := func(tool, arg string) string {
		l := tools[slices.IndexFunc(tools, func(l *sdk.Tool) bool { return l.Name == tool })]
		if arg == "" {
			return l.Description
		}
		d, _ := l.InputSchema.(map[string]any)["properties"].(map[string]any)[arg].(map[string]any)["description"].(string)
		return d
	}
	for _, c := range []struct{ tool, arg, want string }{
		{"sandbox_script", "egress", "Default package-managers"}, {"sandbox_create", "egress", "Default none"}, {"sandbox_agent", "egress", "Default none"},
		{"sandbox_script", "limits", "512"}, {"sandbox_script", "limits", "2 GiB"}, {"sandbox_script", "limits", "half"},
		{"sandbox_script", "key", "persistent"}, {"sandbox_create", "key", "same"}, {"sandbox_script", "max_output_bytes", "24000"},
		{"sandbox_exec", "", "server"}, {"sandbox_exec", "", "&"}, {"sandbox_script", "files", "`/home/user/src/project`"},
		{"sandbox_exec", "sandbox_id", "sandbox_create"}, {"sandbox_list", "", "job"},
	} {
		if got := says(c.tool, c.arg); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q has no %q", c.tool, c.arg, got, c.want)
		}
	}
	if first := instructions[:200]; !strings.Contains(first, "Use ") || !strings.Contains(first, "untrusted") {
		t.Errorf("instructions begin with %q", first)
	}
}

// TestCommandFirst checks the order of arguments: many models write them in the order of the schema.
func TestCommandFirst(t *testing.T) {
	s, _ := serverFor(t, &desk{}, typical)
	for tool, want := range map[string]string{"sandbox_script": "command", "sandbox_exec": "sandbox_id", "sandbox_agent": "prompt"} {
		i := slices.IndexFunc(s.tools(), func(l tool_) bool { return l.name == tool })
		raw, _ := json.Marshal(s.tools()[i].in)
		if !strings.Contains(string(raw), `"properties":{"`+want+`":`) {
			t.Errorf("%s: %.100s", tool, raw)
		}
	}
}

type tool_ = tool

// TestOutputBounded checks that a model sees the head and the tail of a long stdout, and where the whole is.
func TestOutputBounded(t *testing.T) {
	long := "first line\n" + strings.Repeat("é middle\n", 20000) + "last line\n"
	d := &desk{result: &session.RunResult{
		Job: "u-1", OutputDir: "/o/u-1", Result: &runner.Result{},
		Stdout: session.Tail{Text: long, Bytes: int64(len(long)), File: "/o/u-1/stdout.log"},
	}}
	d.jobs = map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Succeeded}, Outcome: d.result}}
	s, _ := serverFor(t, d)
	cs := client(t, s, nil)
	for _, c := range []struct{ tool, args, field string }{
		{"sandbox_script", `{"command":"x"%s}`, "stdout"}, {"sandbox_exec", `{"command":"x","sandbox_id":"s"%s}`, "stdout"}, {"sandbox_wait", `{"job_id":"j"%s}`, "result_text"},
	} {
		for more, most := range map[string]int{"": 24000, `,"max_output_bytes":1000`: 1000, `,"max_output_bytes":"1000"`: 1000, `,"max_output_bytes":900000`: 900000, `,"max_output_bytes":-1`: 24000} {
			text, got, _ := callTool(t, cs, c.tool, strings.Replace(c.args, "%s", more, 1))
			out, _ := got[c.field].(string)
			if !strings.HasPrefix(out, "first line\n") || !strings.HasSuffix(out, "last line\n") || len(out) > most+200 || !utf8.ValidString(out) || !strings.Contains(text, out) {
				t.Errorf("%s %s: %d bytes: %.50q … %q", c.tool, more, len(out), out, out[max(0, len(out)-50):])
			}
			if cut := most < len(long); cut != strings.Contains(out, "/o/u-1/stdout.log") || cut && c.tool != "sandbox_wait" && (got["stdout_truncated"] != true || got["stdout_bytes"] != float64(len(long))) {
				t.Errorf("%s %s: %v, %v bytes", c.tool, more, got["stdout_truncated"], got["stdout_bytes"])
			}
		}
	}
}

// TestOutputOfGiant checks a stream of which the backend has only the beginning and the end.
func TestOutputOfGiant(t *testing.T) {
	end := strings.Repeat("y\n", 1<<19)
	got, cut := shorten(session.Tail{Head: strings.Repeat("x\n", 6000), Text: end, Bytes: 1 << 30, Cut: true}, 24000)
	if !cut || !strings.HasPrefix(got, "x\nx\n") || !strings.HasSuffix(got, "y\ny\n") || len(got) > 24200 || !strings.Contains(got, "1073741824") {
		t.Errorf("%v, %d bytes: %.60q", cut, len(got), got)
	}
	if got, cut := shorten(session.Tail{Text: end, Bytes: 1 << 30, Cut: true}, 1000); !cut || len(got) > 1200 || !strings.HasPrefix(got, "[") {
		t.Errorf("%v, %d bytes: %.60q", cut, len(got), got)
	}
}

// TestFieldOrder checks that a reader that stops early has read how the command ended.
func TestFieldOrder(t *testing.T) {
	d := &desk{result: &session.RunResult{Job: "u", OutputDir: "/o/u", Manifest: "/o/.manifests/u.json",
		Stdout: session.Tail{Text: "hi\n"}, Stderr: session.Tail{Text: "oops\n"},
		Result: &runner.Result{ExitCode: 137, Reason: "oom", Detail: "memory", Receipt: &runner.Receipt{Level: runner.LevelFull, Image: "host", Network: "none", Layers: make([]runner.Layer, 9)}}}}
	s, _ := serverFor(t, d)
	r, err := client(t, s, nil).CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(`{"command":"x"}`)})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := json.Marshal(outcome(d.result, "", defaultOutput))
	at := -1
	for _, name := range []string{`"exit_code"`, `"reason"`, `"stderr"`, `"stdout"`} {
		i := strings.Index(string(raw), name)
		if i <= at {
			t.Errorf("%s at %d in %s", name, i, raw)
		}
		at = i
	}
	fields := r.StructuredContent.(map[string]any)
	if fields["receipt"] != nil || fields["manifest"] != nil || r.Meta["demesne/manifest"] != "/o/.manifests/u.json" {
		t.Errorf("%v, meta %v", fields, r.Meta)
	}
	if short, _ := json.Marshal(r.Meta["demesne/receipt"]); len(short) > 200 || !strings.Contains(string(short), `"level":"full"`) {
		t.Errorf("receipt %s", short)
	}
}

// TestJobTexts checks status and wait: the texts of the original demesne, and what went wrong.
func TestJobTexts(t *testing.T) {
	ended := time.Now()
	ran := func(code int, stdout, stderr string) *session.Job {
		return &session.Job{Job: jobs.Job{ID: "j", Status: jobs.Succeeded, Started: ended.Add(-1500 * time.Millisecond), Ended: ended},
			Outcome: &session.RunResult{OutputDir: "/o", Result: &runner.Result{ExitCode: code, Reason: runner.Exited}, Stdout: session.Tail{Text: stdout}, Stderr: session.Tail{Text: stderr}}}
	}
	running := &session.Job{Job: jobs.Job{ID: "j", Status: jobs.Running, Started: ended, Ended: ended}, Outcome: &session.RunResult{}}
	for _, c := range []struct {
		job                    *session.Job
		tool, args, text       string
		code                   any
		stderrField, stderrHas string
	}{
		{ran(0, "out\n", ""), "sandbox_status", `"include_stdout_tail":true`, "job_id: j\nstatus: succeeded\nelapsed_seconds: 1.5\n---stdout_tail---\nout\n", 0.0, "stderr", ""},
		{ran(0, "", ""), "sandbox_status", `"include_stdout_tail":true`, "job_id: j\nstatus: succeeded\nelapsed_seconds: 1.5\n", 0.0, "stderr", ""},
		{ran(0, "out\n", ""), "sandbox_wait", `"x":1`, "job_id: j\nstatus: succeeded\n---\nout\n", 0.0, "stderr", ""},
		{ran(0, "", ""), "sandbox_wait", `"x":1`, "job_id: j\nstatus: succeeded\n", 0.0, "stderr", ""},
		{running, "sandbox_wait", `"timeout_seconds":1`, "job_id: j\nstatus: running\nmessage: still running; call sandbox_wait again\n", nil, "stderr", ""},
		{running, "sandbox_status", `"x":1`, "job_id: j\nstatus: running\nelapsed_seconds: 0.0\n", nil, "stderr", ""},
		{ran(3, "out\n", "no such file\n"), "sandbox_wait", `"x":1`, "job_id: j\nstatus: succeeded\nexit_code: 3\n---\nout\n---stderr---\nno such file\n", 3.0, "stderr", "no such file\n"},
		{ran(3, "", "no such file\n"), "sandbox_status", `"x":1`, "job_id: j\nstatus: succeeded\nelapsed_seconds: 1.5\nexit_code: 3\n---stderr---\nno such file\n", 3.0, "stderr", "no such file\n"},
	} {
		s, _ := serverFor(t, &desk{jobs: map[string]*session.Job{"j": c.job}})
		text, got, _ := callTool(t, client(t, s, nil), c.tool, `{"job_id":"j",`+c.args+`}`)
		if has, _ := got[c.stderrField].(string); text != c.text || got["exit_code"] != c.code || has != c.stderrHas {
			t.Errorf("%s %s: %q, want %q; %v", c.tool, c.args, text, c.text, got)
		}
	}
}

// TestWarnings checks that arguments that are unknown or unreadable are named, and the call runs nevertheless.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		want       []string
	}{
		{"sandbox_script", `{"command":"x"}`, nil},
		{"sandbox_script", `{"command":"x","image":null,"background":"false","env":{"A":1},"limits":{"pids":"5"}}`, nil},
		{"sandbox_script", `{"command":"x","cmd":"y","files_":[]}`, []string{`"cmd"`, `"files_"`}},
		{"sandbox_script", `{"command":"x","image":5}`, []string{"image"}},
		{"sandbox_script", `{"command":"x","timeout_seconds":"1m"}`, []string{"timeout_seconds", "60"}},
		{"sandbox_script", `{"command":"x","background":"maybe"}`, []string{"background"}},
		{"sandbox_create", `{"sandbox":"y"}`, []string{`"sandbox"`}},
		{"sandbox_exec", `{"sandbox_id":"s","command":"x","max_output_bytes":"many"}`, []string{"max_output_bytes"}},
		{"sandbox_wait", `{"job_id":"j","timeout_seconds":"soon"}`, []string{"timeout_seconds"}},
		{"sandbox_destroy", `{"sandbox_id":"s","force":true}`, []string{`"force"`}},
	} {
		d := &desk{jobs: map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Succeeded}, Outcome: &session.RunResult{}}}}
		s, _ := serverFor(t, d)
		r, err := client(t, s, nil).CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args)})
		if err != nil || r.IsError {
			t.Errorf("%s %s: %v %+v", c.tool, c.args, err, r)
			continue
		}
		fields, structured := r.StructuredContent.(map[string]any)
		warning, _ := fields["warning"].(string)
		last := r.Content[len(r.Content)-1].(*sdk.TextContent).Text
		if len(c.want) == 0 && (warning != "" || len(r.Content) > 1) {
			t.Errorf("%s %s: %q", c.tool, c.args, warning)
		}
		for _, want := range c.want {
			if structured && !strings.Contains(warning, want) || !strings.HasPrefix(last, "warning: ") || !strings.Contains(last, want) {
				t.Errorf("%s %s: %q, %q", c.tool, c.args, warning, last)
			}
		}
		if strings.Contains(c.args, "1m") && d.asked[0].Run.Command.Timeout != time.Minute {
			t.Errorf("timeout %v", d.asked[0].Run.Command.Timeout)
		}
	}
}

// TestWarningBounded checks that a hostile call cannot make a warning long, and that a failed call has one too.
func TestWarningBounded(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	args := map[string]any{}
	for i := range 300 {
		args[strings.Repeat("é", i)+"\x1b"] = 1
	}
	raw, _ := json.Marshal(args)
	r, err := client(t, s, nil).CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(raw)})
	if err != nil || !r.IsError || len(r.Content) != 2 {
		t.Fatalf("%v %+v %+v", err, r, r.Content[0])
	}
	if w := r.Content[1].(*sdk.TextContent).Text; len(w) > 2000 || strings.Contains(w, "\x1b") {
		t.Errorf("%d bytes: %.300q", len(w), w)
	}
}

// TestUnreadableTimeout checks that a time limit that cannot be read is an error, as other limits are.
func TestUnreadableTimeout(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	for _, args := range []string{`{"command":"x","timeout_seconds":"soon"}`, `{"command":"x","timeout_seconds":[1]}`, `{"command":"x","timeout_seconds":"NaN"}`} {
		if text, _, isError := callTool(t, client(t, s, nil), "sandbox_script", args); !isError || text != "timeout_seconds must be a number of seconds" {
			t.Errorf("%s: %q", args, text)
		}
	}
}

// TestListing checks sandbox_list, by which a model finds its sandboxes and jobs again.
func TestListing(t *testing.T) {
	now := time.Now()
	d := &desk{listing: &session.Listing{
		Sandboxes: []session.Listed{{ID: "0a1b", Name: "web", Key: "k1", State: "running", Image: "host", Egress: "none", OutputDir: "/o/1", Created: now.Add(-90 * time.Second),
			Expires: now.Add(time.Hour), Commands: []string{"python3 -m http.server\n\x1b[2J" + strings.Repeat("x", 500)}}, {ID: "2c3d", State: "stopped", Created: now}},
		Jobs: []*session.Job{{Job: jobs.Job{ID: "job-1", Status: jobs.Running, Started: now.Add(-time.Minute)}, Command: "make test"}},
	}}
	s, _ := serverFor(t, d)
	cs := client(t, s, nil)
	text, got, isError := callTool(t, cs, "sandbox_list", `{}`)
	for _, want := range []string{"0a1b", "web", "k1", "running", "python3 -m http.server", "2c3d", "stopped", "job-1", "make test"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if isError || strings.Contains(text, "\x1b") || len(text) > 1000 {
		t.Errorf("%v %q", isError, text)
	}
	one := got["sandboxes"].([]any)[0].(map[string]any)
	if one["sandbox_id"] != "0a1b" || one["key"] != "k1" || one["age_seconds"].(float64) < 90 || got["jobs"].([]any)[0].(map[string]any)["job_id"] != "job-1" {
		t.Errorf("%v", got)
	}
	fits(t, s, "sandbox_list", got)
	d.listing = &session.Listing{}
	if text, got, _ := callTool(t, cs, "sandbox_list", `{}`); text != "no sandboxes\nno jobs\n" || len(got["sandboxes"].([]any)) != 0 || len(got["jobs"].([]any)) != 0 {
		t.Errorf("%q %v", text, got)
	}
}

// TestBuildTool checks what a build gets of a call: the same images, networks, inputs and ceilings as other tools, no
// credential, and a bound of its disk. A server without a builder has no such tool.
func TestBuildTool(t *testing.T) {
	var asked []session.Request
	s, root := serverFor(t, &desk{}, func(o *Options) {
		o.Sets, o.Policy = []string{"sandboxes"}, bounded(session.Bounds{Max: runner.Limits{Memory: 1 << 30}})
		o.Build = func(ctx context.Context, r session.Request, w session.Callbacks) (image, digest string, log session.Tail, err error) {
			asked = append(asked, r)
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a build without a time limit")
			}
			if strings.Contains(r.Run.Stdin, "fail") {
				return "", "", log, errors.New("build: exit status 1\nSTEP 1")
			}
			return "local/x", "sha256:0", session.Tail{Text: "done\n", Bytes: 5}, nil
		}
	})
	in := filepath.Join(root, "in.txt")
	if err := os.WriteFile(in, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cs := client(t, s, nil)
	text, got, isError := callTool(t, cs, "sandbox_build", `{"containerfile":"FROM host","files":["`+in+`"],"limits":{"memory":1000000},"egress":"none"}`)
	if isError || text != "image: local/x\ndigest: sha256:0\nlog: done\n" || got["image"] != "local/x" || got["log"] != "done\n" {
		t.Errorf("%q %v", text, got)
	}
	if r := asked[0]; r.Run.Stdin != "FROM host" || r.Create.Egress.Mode != "none" || r.Create.Spec.Limits.Memory != 1000000 || r.Create.Spec.Limits.Disk != runner.DefaultDisk || len(r.Create.Spec.Inputs) != 1 || r.Create.Spec.Inputs[0].Name != "in.txt" {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		`{}`: "containerfile", `{"containerfile":"fail"}`: "build: exit status 1\nSTEP 1",
		`{"containerfile":"x","limits":{"memory":2000000000}}`: "is more than 1073741824, the ceiling", `{"containerfile":"x","egress":"open"}`: "open",
		`{"containerfile":"x","files":["/etc/shadow"]}`: "/etc/shadow", `{"containerfile":"x","allowed_domains":["192.0.2.1"]}`: "192.0.2.1",
	} {
		if text, _, isError := callTool(t, cs, "sandbox_build", args); !isError || !strings.Contains(text, want) {
			t.Errorf("%s: %q", args, text)
		}
	}
	if len(asked) != 2 {
		t.Errorf("%d builds", len(asked))
	}
	if bare, _ := serverFor(t, &desk{}, func(o *Options) { o.Sets = []string{"sandboxes"} }); bare.Offers("sandbox_build") {
		t.Error("a server that cannot build offers it")
	}
}

// TestSandboxesSet checks the tools and arguments of the set "sandboxes".
func TestSandboxesSet(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, func(o *Options) { o.Sets = []string{"sandboxes"} })
	cs := client(t, s, nil)
	if text, got, isError := callTool(t, cs, "sandbox_fork", `{"sandbox_id":"s","name":"n"}`); isError || text != "sandbox_id: f1\noutput_dir: /o/f1" || got["sandbox_id"] != "f1" {
		t.Errorf("fork: %q %v", text, got)
	}
	if text, got, isError := callTool(t, cs, "sandbox_copy", `{"sandbox_id":"s","src":"/a","to_sandbox_id":"f1","dst":"/b"}`); isError || text != "copied: /a -> /b" || got["files"] != 1.0 {
		t.Errorf("copy: %q %v", text, got)
	}
	if text, _, isError := callTool(t, cs, "sandbox_copy", `{"sandbox_id":"s","src":"/a"}`); !isError || text != "sandbox_id, src, to_sandbox_id and dst are required" {
		t.Errorf("copy: %q", text)
	}
	if strings.Join(append(d.forked, d.copied...), " ") != "s n s /a f1 /b" {
		t.Errorf("%v %v", d.forked, d.copied)
	}
	if text, _, isError := callTool(t, cs, "sandbox_create", `{"ttl_seconds":60,"user":"nobody"}`); isError || time.Duration(d.asked[0].Create.Spec.TTL) != time.Minute || d.asked[0].Create.User != "nobody" {
		t.Errorf("%q %+v", text, d.asked)
	}
	for _, ttl := range []string{`-1`, `172801`, `"soon"`, `1e300`, `"NaN"`} {
		if text, _, isError := callTool(t, cs, "sandbox_create", `{"ttl_seconds":`+ttl+`}`); !isError || text != "ttl_seconds must be a number of seconds, at most 172800" {
			t.Errorf("%s: %q", ttl, text)
		}
	}
	s, _ = serverFor(t, d)
	_, got, _ := callTool(t, client(t, s, nil), "sandbox_create", `{"ttl_seconds":60,"user":"nobody"}`)
	if warning, _ := got["warning"].(string); !strings.Contains(warning, "ttl_seconds") || !strings.Contains(warning, "user") || d.asked[len(d.asked)-1].Create.User != "" {
		t.Errorf("without the set: %v %+v", got, d.asked)
	}
}

// TestImagesNamed checks that a model sees the images that the operator allowed, and may use those that they cover.
func TestImagesNamed(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, func(o *Options) {
		o.Images = append(o.Images, "local/*")
		o.Policy = bounded(session.Bounds{AllowedImages: []string{"local/*"}})
	})
	cs := client(t, s, nil)
	if raw, _ := listOfTools(t, s); !strings.Contains(raw, "python, local/*") {
		t.Error("local/* is not in the list")
	}
	if text, _, isError := callTool(t, cs, "sandbox_script", `{"command":"x","image":"local/tool"}`); isError || d.asked[0].Create.Pull != images.PullNever || d.asked[0].Create.Image.String() != "local/tool" {
		t.Errorf("%q %+v", text, d.asked)
	}
	if text, _, isError := callTool(t, cs, "sandbox_script", `{"command":"x","image":"zzz"}`); !isError || !strings.HasPrefix(text, `image "zzz" is not in the allowlist (host, python, local/*)`+"\n") {
		t.Errorf("%q", text)
	}
}

// TestLongLine checks that a stream that is one long line has a head and a tail too.
func TestLongLine(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 100000) + "end\n", strings.Repeat("x", 100000), "begin\n" + strings.Repeat("x", 100000) + "end\n"} {
		got, cut := shorten(session.Tail{Text: text, Bytes: int64(len(text))}, 24000)
		if !cut || len(got) < 23000 || len(got) > 24200 || got[:6] != text[:6] || got[len(got)-4:] != text[len(text)-4:] {
			t.Errorf("%d bytes: %.20q … %q", len(got), got, got[len(got)-20:])
		}
	}
}
