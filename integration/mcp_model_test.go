package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMCPLongOutput checks that a model gets the head and the tail of a long stdout, and that the file that the result
// names has all of it: of a command in a persistent sandbox and of a job too.
func TestMCPLongOutput(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	id := c.must("sandbox_create", args{}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": id, "command": "mkdir -p /out/stdout; echo planted > /out/stdout.log"})
	want := numbers(20000)
	call := args{"command": "seq 1 20000"}
	job := func(more args) answer {
		a := args{"command": "seq 1 20000", "background": true}
		for k, v := range more {
			a[k] = v
		}
		return c.must("sandbox_wait", args{"job_id": c.must("sandbox_script", a).field("job_id")})
	}
	for name, r := range map[string]answer{
		"script": c.must("sandbox_script", call), "exec": c.must("sandbox_exec", args{"sandbox_id": id, "command": "seq 1 20000"}),
		"key": c.must("sandbox_script", args{"command": "seq 1 20000", "key": "k"}), "job": job(nil), "job with a key": job(args{"key": "k"}),
	} {
		field := "stdout"
		if r.Fields[field] == nil {
			field = "result_text"
		}
		got := r.field(field)
		if len(got) > 24300 || !strings.HasPrefix(got, "1\n2\n") || !strings.HasSuffix(got, "\n19999\n20000\n") {
			t.Errorf("%s: %d bytes, %.60q", name, len(got), got)
		}
		_, after, _ := strings.Cut(got, "all of it: ")
		file, _, found := strings.Cut(after, "]\n")
		if whole, err := os.ReadFile(file); !found || err != nil || string(whole) != want {
			t.Errorf("%s: %q has %d bytes, %v", name, file, len(whole), err)
		}
	}
	if r := c.must("sandbox_exec", args{"sandbox_id": id, "command": "seq 1 20000", "max_output_bytes": 1 << 20}); r.field("stdout") != want || r.Fields["stdout_truncated"] != nil {
		t.Errorf("all of it: %d bytes", len(r.field("stdout")))
	}
	for range 12 {
		c.must("sandbox_exec", args{"sandbox_id": id, "command": "seq 1 20000"})
	}
	if kept, _ := filepath.Glob(filepath.Join(b.out, id, "stdout", "*")); len(kept) != 8 {
		t.Errorf("%d long outputs are kept", len(kept))
	}
	for _, left := range c.must("sandbox_list", args{}).Fields["sandboxes"].([]any) {
		c.must("sandbox_destroy", args{"sandbox_id": left.(map[string]any)["sandbox_id"]})
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// TestMCPListing checks that a model that has forgotten everything finds its sandboxes, what runs in them, and its jobs;
// and none of the command line's.
func TestMCPListing(t *testing.T) {
	b := newBox(t)
	theirs := b.create("--name", "theirs")
	c := b.mcp()
	id := c.must("sandbox_create", args{"name": "web", "key": "my key"}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": id, "command": "sleep 4321 >/dev/null 2>&1 & exec 2>&1; printf x"})
	job := c.must("sandbox_script", args{"command": "sleep 4322", "background": true}).field("job_id")
	r := b.once("sandbox_list", args{})
	all := r.Fields["sandboxes"].([]any)
	if len(all) != 1 || strings.Contains(r.Text, theirs) || strings.Contains(r.Text, "theirs") {
		t.Fatalf("%+v", r)
	}
	one := all[0].(map[string]any)
	if one["sandbox_id"] != id || one["name"] != "web" || one["key"] != "my key" || one["state"] != "running" || fmt.Sprint(one["commands"]) != "[sleep 4321]" {
		t.Errorf("%v", one)
	}
	for _, want := range []string{id, "web", `"my key"`, "sleep 4321", job, "running", "sleep 4322"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %s in %q", want, r.Text)
		}
	}
	c.must("sandbox_cancel", args{"job_id": job})
	c.must("sandbox_destroy", args{"sandbox_id": id})
	if r := c.must("sandbox_list", args{}); !strings.HasPrefix(r.Text, "no sandboxes\njob_id: "+job+" status: cancelled") {
		t.Errorf("at last: %q", r.Text)
	}
	if r := c.call("sandbox_exec", args{"sandbox_id": "nope", "command": "true"}); !r.IsError || !strings.Contains(r.Text, `"nope": no such sandbox`) || !strings.Contains(r.Text, "sandbox_list") {
		t.Errorf("an unknown sandbox: %+v", r)
	}
	b.demesne("rm", theirs)
}

// TestMCPSandboxesSet checks the tools of the set "sandboxes": a fork has the files and is on its own, a copy arrives, and
// the command line's sandboxes are out of reach.
func TestMCPSandboxesSet(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_TOOLS=sandboxes", "DEMESNE_MAX_PIDS=600")
	theirs := b.create("--name", "theirs")
	c := b.mcp()
	id := c.must("sandbox_create", args{"ttl_seconds": 3600, "name": "one"}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": id, "command": "echo before > /var/tmp/f"})
	fork := c.must("sandbox_fork", args{"sandbox_id": "one", "name": "two"}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": "two", "command": "cat /var/tmp/f; echo after > /var/tmp/f"})
	if r := c.must("sandbox_exec", args{"sandbox_id": id, "command": "cat /var/tmp/f"}); r.field("stdout") != "before\n" || fork == id {
		t.Errorf("the original: %v", r.Fields)
	}
	if r := c.must("sandbox_copy", args{"sandbox_id": "two", "src": "/var/tmp/f", "to_sandbox_id": "one", "dst": "/var/tmp/g"}); r.Text != "copied: /var/tmp/f -> /var/tmp/g" {
		t.Errorf("copy: %+v", r)
	}
	if r := c.must("sandbox_exec", args{"sandbox_id": id, "command": "cat /var/tmp/g"}); r.field("stdout") != "after\n" {
		t.Errorf("the copy: %v", r.Fields)
	}
	for tool, a := range map[string]args{
		"sandbox_fork": {"sandbox_id": theirs}, "sandbox_limits": {"sandbox_id": theirs, "limits": args{"memory": 64 << 20}},
		"sandbox_copy": {"sandbox_id": theirs, "src": "/etc/passwd", "to_sandbox_id": "one", "dst": "/tmp/x"},
	} {
		if r := c.call(tool, a); !r.IsError || !strings.Contains(r.Text, "attach to sandbox "+theirs) {
			t.Errorf("%s of the command line's: %+v", tool, r)
		}
	}
	if r := c.call("sandbox_copy", args{"sandbox_id": "one", "src": "/var/tmp/g", "to_sandbox_id": theirs, "dst": "/tmp/x"}); !r.IsError || !strings.Contains(r.Text, theirs) {
		t.Errorf("into the command line's: %+v", r)
	}
	c.must("sandbox_limits", args{"sandbox_id": "two", "limits": args{"memory": 100 << 20, "cpus": 1}})
	if r := b.demesne("inspect", "two"); !strings.Contains(r.stdout, "100.0 MiB") {
		t.Errorf("after a change of its limits: %+v", r)
	}
	for want, l := range map[string]args{"1024 is more than 600, the ceiling (DEMESNE_MAX_PIDS)": {"pids": 1024}, "disk and files cannot change": {"disk": 1 << 20}, "one of memory": {}, "positive": {"cpus": -1}} {
		if r := c.call("sandbox_limits", args{"sandbox_id": "two", "limits": l}); !r.IsError || !strings.Contains(r.Text, want) {
			t.Errorf("%v: %+v", l, r)
		}
	}
	for _, name := range []string{"one", "two"} {
		c.must("sandbox_destroy", args{"sandbox_id": name})
	}
	b.demesne("rm", theirs)
}

// TestMCPBuild checks that a model builds an image from text and inputs, and uses it later; and that a build gets neither an
// image, a network nor a limit that another call would not get.
func TestMCPBuild(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.file("in/d/f", "of a directory\n", 0o644)
	s.extra = append(s.extra, "DEMESNE_TOOLS=sandboxes", "DEMESNE_ALLOWED_IMAGES=local/*", "DEMESNE_MAX_PIDS=77", "DEMESNE_MAX_DISK=64m", "DEMESNE_ALLOWED_PATHS="+s.dir+"/in")
	c := s.mcp()
	build := func(file string, more args) args {
		a := args{"containerfile": file, "egress": "none", "directories": []string{s.dir + "/in/d"}}
		maps.Copy(a, more)
		return a
	}
	first := c.must("sandbox_build", build("FROM local/bb\nCOPY d/f /f\nRUN cat /f; ulimit -u > /pids", nil))
	image := first.field("image")
	if !strings.HasPrefix(image, "local/built-by-models/") || !strings.HasPrefix(first.field("digest"), "sha256:") || !strings.Contains(first.field("log"), "of a directory") {
		t.Errorf("%+v", first)
	}
	if r := c.must("sandbox_script", args{"image": image, "command": "cat /f", "egress": "none"}); r.field("stdout") != "of a directory\n" {
		t.Errorf("%+v", r)
	}
	second := c.must("sandbox_build", build("FROM "+image+"\nRUN echo more >> /f", nil)).field("image")
	if r := c.must("sandbox_create", args{"image": second, "key": "k"}); c.must("sandbox_exec", args{"sandbox_id": r.field("sandbox_id"), "command": "cat /f"}).field("stdout") != "of a directory\nmore\n" {
		t.Errorf("%+v", r)
	}
	refused := func(a args, want string) {
		t.Helper()
		if r := c.call("sandbox_build", a); !r.IsError || !strings.Contains(r.Text, want) {
			t.Errorf("want %q: %+v", want, r)
		}
	}
	other := s.reg.Ref("other:1")
	refused(build("FROM "+other, nil), `image "`+other+`": not allowed`)
	refused(build("FROM local/bb\nCOPY --from="+other+" /x /x", nil), "not allowed")
	refused(build("FROM local/bb\nRUN --mount=type=bind,from="+other+",target=/x true", nil), "not allowed")
	refused(build("FROM local/bb\nRUN echo said; exit 3", nil), "said")
	refused(build("FROM local/bb\nRUN --mount=type=ssh,required=true true", nil), "ssh")
	refused(build("FROM local/bb\nRUN --mount=type=secret,id=x,required=true true", nil), "secret")
	refused(build("FROM local/bb\nADD http://127.0.0.1/x /", nil), "--egress none forbids it")
	refused(build("FROM local/bb\nRUN dd if=/dev/zero of=/big bs=1M seek=99 count=1", nil), "SIGXFSZ")
	refused(build("FROM local/bb", args{"limits": args{"pids": 78}}), "ceiling (DEMESNE_MAX_PIDS)")
	refused(build("FROM local/bb\nRUN sleep 100", args{"timeout_seconds": 1}), "time limit of 1s")
	refused(build("nonsense", nil), "nonsense")
	refused(args{"containerfile": "FROM local/bb", "files": []string{"/etc/passwd"}}, "/etc/passwd")
	var last string
	for i := range 17 { // 16 are kept, in addition to images in use
		last = c.must("sandbox_build", build(fmt.Sprintf("FROM local/bb\nLABEL n=%d", i), nil)).field("image")
	}
	if r := c.call("sandbox_script", args{"image": image, "command": "true", "egress": "none"}); !r.IsError {
		t.Errorf("the oldest is still there: %+v", r)
	}
	for _, kept := range []string{second, last, "local/bb"} {
		c.must("sandbox_script", args{"image": kept, "command": "true", "egress": "none"})
	}
	if n := strings.Count(s.ok("images"), "built-by-models/"); n < 16 || n > 17 {
		t.Errorf("%d images are kept", n)
	}
	c.must("sandbox_destroy", args{"sandbox_id": c.must("sandbox_list", args{}).Fields["sandboxes"].([]any)[0].(map[string]any)["sandbox_id"]})
	c.close()
}

// TestMCPMissingPath checks that a directory of DEMESNE_ALLOWED_PATHS that does not exist does not stop the server.
func TestMCPMissingPath(t *testing.T) {
	b := newBox(t)
	in := filepath.Dir(b.file("in.txt", "input\n", 0o644))
	b.extra = append(b.extra, "DEMESNE_ALLOWED_PATHS="+in+":"+in+"/none")
	c := b.mcp()
	if r := c.must("sandbox_script", args{"command": "cat /in/in.txt", "files": []string{in + "/in.txt"}}); r.field("stdout") != "input\n" {
		t.Errorf("%+v", r)
	}
	if r := c.call("sandbox_script", args{"command": "true", "files": []string{"/etc/passwd"}}); !r.IsError || !strings.Contains(r.Text, "`"+in+"`") {
		t.Errorf("another file: %+v", r)
	}
	c.close()
	if got := c.errs.String(); !strings.Contains(got, fmt.Sprintf("warning: DEMESNE_ALLOWED_PATHS: %q does not exist", in+"/none")) {
		t.Errorf("stderr: %q", got)
	}
}
