package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// written returns an output root with files that a hostile sandbox could write.
func written(t *testing.T) outputs {
	t.Helper()
	o := outputs{root: t.TempDir()}
	run := filepath.Join(o.root, "run")
	secret := filepath.Join(o.root, "other", "secret")
	err := errors.Join(
		os.MkdirAll(run+"/sub dir", 0o755), os.Mkdir(o.root+"/other", 0o755), os.Mkdir(o.root+"/.egress", 0o755),
		os.WriteFile(secret, []byte("secret"), 0o600), os.WriteFile(o.root+"/.egress/log", nil, 0o600),
		os.WriteFile(run+"/stdout.log", []byte("out"), 0o600),
		os.WriteFile(run+"/sub dir/ö #1.txt", []byte("text"), 0o600),
		os.WriteFile(run+"/plot.png", []byte("\x89PNG\r\n\x1a\n"), 0o600),
		os.WriteFile(run+"/noext", []byte("\x7fELF\x00\xff"), 0o600),
		os.Symlink("../other/secret", run+"/inner"), os.Symlink("/etc/passwd", run+"/outer"),
		os.Symlink("../other", run+"/dir"), os.Symlink("loop", run+"/loop"),
		unix.Mkfifo(run+"/fifo", 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOutputsOfAgent checks that only /out in an agent's directory is listed.
func TestOutputsOfAgent(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"run/out/answer.md", "run/sidecar-results/usage.json", "run/config/CONTEXT", "run/workspace/w"} {
		err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), []byte("x"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{outputs: outputs{root: root}}
	if list := s.outputs.recent(); len(list) != 1 || list[0].Name != "run/out/answer.md" || list[0].URI != "demesne://outputs/run/out/answer.md" {
		t.Errorf("recent: %+v", list)
	}
	for dir, want := range map[string]int{"/run/out": 1, "/run/workspace": 0, "/run/out/child/a/out": 0, "/other": 0, "/run/out/../..": 0} {
		if list := s.written(root + dir); len(list) != want {
			t.Errorf("%s: %+v", dir, list)
		}
	}
}

func TestOutputFiles(t *testing.T) {
	o := written(t)
	files := o.files("run", listedFiles)
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprintf("%s %s %d %s", f.Name, f.URI, f.Size, f.MIME))
	}
	want := "noext demesne://outputs/run/noext 6 application/octet-stream|" +
		"plot.png demesne://outputs/run/plot.png 8 image/png|" +
		"sub dir/ö #1.txt demesne://outputs/run/sub%20dir/%C3%B6%20%231.txt 4 text/plain; charset=utf-8"
	if strings.Join(got, "|") != want {
		t.Errorf("%v\nwant %s", got, want)
	}
	for _, f := range files {
		if _, _, err := o.read(f.URI); err != nil {
			t.Errorf("%s cannot be read: %v", f.URI, err)
		}
	}
	for _, f := range o.recent() {
		if strings.Contains(f.Name, "egress") || !strings.HasPrefix(f.Name, "run/") && !strings.HasPrefix(f.Name, "other/") {
			t.Errorf("listed: %+v", f)
		}
	}
}

// TestOutputFilesBounded checks that listing the files of a sandbox that wrote very many visits
// only some of them.
func TestOutputFilesBounded(t *testing.T) {
	o := outputs{root: t.TempDir()}
	dir := filepath.Join(o.root, "run")
	os.Mkdir(dir, 0o755)
	for i := range listedFiles + 5 {
		os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d", i)), nil, 0o600)
	}
	if files := o.files("run", listedFiles); len(files) != listedFiles {
		t.Errorf("%d files", len(files))
	}
}

// TestOutputRead checks that reading follows no link, does not block and stays inside the root.
func TestOutputRead(t *testing.T) {
	o := written(t)
	if err := os.Truncate(filepath.Join(o.root, "run/plot.png"), readMax+1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ uri, text, kind, wrong string }{
		{"run/sub%20dir/%C3%B6%20%231.txt", "text", "text/plain; charset=utf-8", ""},
		{"run/stdout.log", "out", "text/plain; charset=utf-8", ""},
		{"run/noext", "\x7fELF\x00\xff", "application/octet-stream", ""},
		{"run/plot.png", "", "", "more than 8388608"},
		{"run/inner", "", "", errNoOutput.Error()}, {"run/outer", "", "", errNoOutput.Error()},
		{"run/dir/secret", "", "", errNoOutput.Error()}, {"run/loop", "", "", errNoOutput.Error()},
		{"run/fifo", "", "", errNoOutput.Error()}, {"run", "", "", errNoOutput.Error()}, {"", "", "", errNoOutput.Error()},
		{"../x", "", "", errNoOutput.Error()}, {"run/../../etc", "", "", errNoOutput.Error()}, {"/etc/passwd", "", "", errNoOutput.Error()},
		{"%2e%2e/%2e%2e/etc/passwd", "", "", errNoOutput.Error()}, {"run/%00", "", "", errNoOutput.Error()}, {"run/%zz", "", "", errNoOutput.Error()},
		{"run/" + strings.Repeat("x", 300), "", "", errNoOutput.Error()},
	} {
		content, kind, err := o.read(outputScheme + c.uri)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %q %v, want %q", c.uri, content, err, c.wrong)
			}
			continue
		}
		if err != nil || string(content) != c.text || kind != c.kind {
			t.Errorf("%s: %q %s %v", c.uri, content, kind, err)
		}
	}
	if _, _, err := o.read("file:///etc/passwd"); !errors.Is(err, errNoOutput) {
		t.Errorf("another scheme: %v", err)
	}
}

func FuzzOutputRead(f *testing.F) {
	for _, s := range []string{"run/f", "../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "run//f", "run/./f", "\x00"} {
		f.Add(s)
	}
	root := f.TempDir()
	o := outputs{root: filepath.Join(root, "out")}
	if err := errors.Join(os.MkdirAll(o.root+"/run", 0o755), os.WriteFile(o.root+"/run/f", []byte("inside"), 0o600), os.WriteFile(root+"/f", []byte("outside"), 0o600)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if content, _, err := o.read(outputScheme + name); err == nil && string(content) != "inside" {
			t.Errorf("%q reads %q", name, content)
		}
	})
}

// TestResources checks that a real client lists and reads outputs, and finds links to them in
// results.
func TestResources(t *testing.T) {
	o := written(t)
	d := &desk{jobs: map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Succeeded}, Outcome: &session.RunResult{OutputDir: o.root + "/run", Result: &runner.Result{}}}}}
	s, _ := serverFor(t, d, func(opts *Options) { opts.Outputs = o.root })
	cs := client(t, s, nil)
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 4 {
		t.Fatalf("list: %+v %v", list, err)
	}
	read, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: outputScheme + "run/plot.png"})
	if err != nil || read.Contents[0].MIMEType != "image/png" || !bytes.HasPrefix(read.Contents[0].Blob, []byte("\x89PNG")) {
		t.Errorf("read: %+v %v", read, err)
	}
	if _, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: outputScheme + "run/inner"}); err == nil {
		t.Error("a link is read")
	}
	r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_wait", Arguments: map[string]any{"job_id": "j"}})
	if err != nil || len(r.Content) != 4 {
		t.Fatalf("wait: %+v %v", r, err)
	}
	if l, ok := r.Content[2].(*sdk.ResourceLink); !ok || l.URI != outputScheme+"run/plot.png" || *l.Size != 8 {
		t.Errorf("link: %+v", r.Content[2])
	}
	if files := r.StructuredContent.(map[string]any)["outputs"].([]any); len(files) != 3 {
		t.Errorf("outputs: %v", files)
	}
}

func TestPrompts(t *testing.T) {
	d := &desk{jobs: map[string]*session.Job{"j": {
		Job:     jobs.Job{ID: "j", Status: jobs.Failed, Message: "the runner was killed"},
		Outcome: &session.RunResult{Stderr: session.Tail{Text: "last words"}, Result: &runner.Result{ExitCode: 125, Reason: runner.Lost}},
	}}}
	s, _ := serverFor(t, d)
	cs := client(t, s, nil)
	for _, c := range []struct {
		name string
		args map[string]string
		want []string
		ok   bool
	}{
		{"run_in_sandbox", map[string]string{"task": "count lines", "paths": "/data/a"}, []string{"count lines", "/data/a", "sandbox_script"}, true},
		{"run_in_sandbox", map[string]string{"task": " "}, nil, false},
		{"explain_job", map[string]string{"job_id": "j"}, []string{"j is failed. the runner was killed", "Exit code 125 (lost)", "last words"}, true},
		{"explain_job", map[string]string{"job_id": "nope"}, nil, false},
		{"explain_job", nil, nil, false},
	} {
		r, err := cs.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: c.name, Arguments: c.args})
		if (err == nil) != c.ok {
			t.Errorf("%s %v: %v", c.name, c.args, err)
		}
		for _, w := range c.want {
			if text := r.Messages[0].Content.(*sdk.TextContent).Text; !strings.Contains(text, w) {
				t.Errorf("%s: %q lacks %q", c.name, text, w)
			}
		}
	}
}
