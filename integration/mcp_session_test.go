package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// once calls one tool of a new server, as scripts do: start, ask, end of input.
func (b *box) once(tool string, a args) answer {
	b.Helper()
	c := b.mcp()
	_, ch := c.start(tool, a)
	c.in.Close() // the server has begun the call, or not even read it
	r := c.await(ch)
	if code := c.wait(); code != 0 {
		b.Errorf("%s: the server exits %d\nstderr: %s", tool, code, c.errs.String())
	}
	return r
}

// TestMCPSessionSixProcesses checks that six server processes in a row can use the sandbox that the first one
// created.
func TestMCPSessionSixProcesses(t *testing.T) {
	b := newBox(t)
	data := b.file("data.csv", "a,b\n1,2\n", 0o644)
	box := b.once("sandbox_create", args{}).field("sandbox_id")
	steps := []struct {
		tool string
		args args
		want string
	}{
		{"sandbox_exec", args{"command": "mkdir -p /tmp/d; echo kept > /tmp/d/f; (setsid sleep 3344 &); echo ok"}, "exit_code: 0\n---\nok\n\n---stderr---\n"},
		{"sandbox_upload", args{"src": data, "dst": "/tmp/data.csv"}, "uploaded: data.csv -> /tmp/data.csv"},
		{"sandbox_exec", args{"command": "cat /tmp/d/f; tail -n1 /tmp/data.csv > /tmp/results.json; exit 4"}, "exit_code: 4\n---\nkept\n\n---stderr---\n"},
		{"sandbox_download", args{"src": "/tmp/results.json"}, "downloaded: /tmp/results.json -> " + b.out + "/" + box + "/downloads/results.json"},
		{"sandbox_destroy", args{}, "destroyed: " + box},
	}
	for i, s := range steps {
		s.args["sandbox_id"] = box
		if r := b.once(s.tool, s.args); r.IsError || r.Text != s.want {
			t.Errorf("%s: %+v, want %q", s.tool, r, s.want)
		}
		if i == 0 {
			eventually(t, "the background process", func() bool { return sleepers("3344") == 1 })
		}
		if i == 3 && sleepers("3344") != 1 {
			t.Error("a background process ended with the server that started it")
		}
	}
	path := filepath.Join(b.out, box, "downloads/results.json")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 || readFile(t, path) != "1,2\n" {
		t.Errorf("%s: %v %v", path, st, err)
	}
	for _, tool := range []string{"sandbox_destroy", "sandbox_exec"} {
		if r := b.once(tool, args{"sandbox_id": box, "command": "true"}); !r.IsError || !strings.HasPrefix(r.Text, "attach to sandbox "+box+": ") {
			t.Errorf("%s afterwards: %+v", tool, r)
		}
	}
}

// TestMCPFiles copies files and directories in both directions, over existing ones, and many at once.
func TestMCPFiles(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	b.file("tree/a", "1\n", 0o600)
	b.file("tree/sub/b", "2\n", 0o755)
	os.Symlink("/etc/passwd", filepath.Join(b.dir, "tree/link"))
	box := c.must("sandbox_create", args{"name": "files"}).field("sandbox_id")
	c.must("sandbox_upload", args{"sandbox_id": "files", "src": b.dir + "/tree", "dst": "/tmp/tree"})
	r := c.must("sandbox_exec", args{"sandbox_id": box, "command": "cd /tmp/tree; cat a sub/b; readlink link; echo 3 >> a; ln -s /etc/shadow out; mkfifo p"})
	if r.field("stdout") != "1\n2\n/etc/passwd\n" {
		t.Errorf("uploaded: %+v", r)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r := c.must("sandbox_download", args{"sandbox_id": box, "src": "/tmp/tree"}); !strings.HasSuffix(r.field("path"), box+"/downloads/tree") || r.field("left_out_count") != "3" {
				t.Errorf("download: %+v", r)
			}
		})
	}
	wg.Wait()
	down := filepath.Join(b.out, box, "downloads")
	if got := readFile(t, down+"/tree/a"); got != "1\n3\n" {
		t.Errorf("downloaded: %q", got)
	}
	if got := fmt.Sprint(names(down), names(down+"/tree")); got != "[tree] [a sub]" {
		t.Errorf("downloads: %s", got)
	}
	// A download from one sandbox may be uploaded to another.
	other := c.must("sandbox_create", args{}).field("sandbox_id")
	c.must("sandbox_upload", args{"sandbox_id": other, "src": down + "/tree", "dst": "/srv/tree"})
	if r := c.must("sandbox_exec", args{"sandbox_id": other, "command": "cat /srv/tree/a /srv/tree/sub/b"}); r.field("stdout") != "1\n3\n2\n" {
		t.Errorf("in another: %+v", r)
	}
	c.must("sandbox_destroy", args{"sandbox_id": other})
	for src, says := range map[string]string{
		"/tmp/none": "no such file", "tmp/relative": "not an absolute path", "/proc/1/mem": "", "/dev/zero": "only files and directories are copied", "/": "will not copy / out",
	} {
		if r := c.call("sandbox_download", args{"sandbox_id": box, "src": src}); !r.IsError || !strings.Contains(r.Text, says) {
			t.Errorf("download %s: %+v, want %q", src, r, says)
		}
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}

// TestMCPExecBackground checks that a background process of a command can keep writing: its output is read, and
// the call does not wait for it.
func TestMCPExecBackground(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	defer c.must("sandbox_destroy", args{"sandbox_id": box})
	r := c.must("sandbox_exec", args{"sandbox_id": box, "command": "while sleep 0.02; do echo beat; date > /tmp/beat; done & echo started"})
	if !strings.HasPrefix(r.field("stdout"), "started\n") && !strings.HasPrefix(r.field("stdout"), "beat\n") {
		t.Errorf("%+v", r.Fields)
	}
	r = c.must("sandbox_exec", args{"sandbox_id": box, "command": "rm -f /tmp/beat; for i in $(seq 500); do sleep 0.02; test -s /tmp/beat && echo beating && exit; done"})
	if r.field("stdout") != "beating\n" {
		t.Errorf("what was left running is gone: %+v", r.Fields)
	}
}

// TestMCPExecParallel runs commands in one sandbox, and in many, at once.
func TestMCPExecParallel(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			_, ch := c.start("sandbox_exec", args{"sandbox_id": box, "command": fmt.Sprintf("cat; exit %d", i), "stdin": fmt.Sprint("in", i)})
			if r := <-ch; r.field("exit_code") != fmt.Sprint(i) || r.field("stdout") != fmt.Sprint("in", i) {
				t.Errorf("exec %d: %+v", i, r)
			}
		})
	}
	wg.Wait()
	c.must("sandbox_destroy", args{"sandbox_id": box})
}

// TestMCPKey checks that a key finds the same sandbox and its files from any process and tool, unless it is to be
// replaced (M6).
func TestMCPKey(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_ALLOWED_DOMAINS=a.test") // or no model gets as far as the comparison
	want := args{"key": "my project"}
	first := b.once("sandbox_create", want).field("sandbox_id")
	if r := b.once("sandbox_create", want); r.field("sandbox_id") != first || r.receipt() == nil || r.Fields["expires"] == nil {
		t.Errorf("again: %+v, first %s", r, first)
	}
	c := b.mcp()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if r := c.must("sandbox_create", want); r.field("sandbox_id") != first {
				t.Errorf("at once: %+v", r)
			}
		})
	}
	wg.Wait()
	c.must("sandbox_exec", args{"sandbox_id": first, "command": "echo kept > /tmp/f"})
	// Arguments that are left out match, though this tool has other defaults.
	if r := c.must("sandbox_script", args{"key": "my project", "command": "cat /tmp/f"}); r.field("stdout") != "kept\n" || r.Fields["replaced"] != nil {
		t.Errorf("by a script: %v", r.Fields)
	}
	for says, a := range map[string]args{
		`pids: created without it, requested "100"`:                 {"limits": args{"pids": 100}},
		`egress: created with "none", requested "package-managers"`: {"egress": "package-managers"},
		`allowed domains: created without it, requested "`:          {"allowed_domains": []string{"a.test"}},
	} {
		a["key"] = "my project"
		for _, tool := range []string{"sandbox_create", "sandbox_script"} {
			a["command"] = "true"
			if r := c.call(tool, a); !r.IsError || !strings.Contains(r.Text, says) || !strings.Contains(r.Text, "replace: true") {
				t.Errorf("%s %v: %+v, want %q", tool, a, r, says)
			}
		}
	}
	if r := c.must("sandbox_exec", args{"sandbox_id": first, "command": "cat /tmp/f"}); r.field("stdout") != "kept\n" {
		t.Errorf("after that: %v", r.Fields)
	}
	if r := c.call("sandbox_create", args{"replace": true}); !r.IsError {
		t.Errorf("replace without a key: %+v", r)
	}
	made := c.must("sandbox_create", args{"key": "my project", "limits": args{"pids": 100}, "replace": true})
	other := made.field("sandbox_id")
	if other == first || made.field("replaced") != "true" {
		t.Errorf("asked for something else: %v", made.Fields)
	}
	if r := c.must("sandbox_script", args{"key": "my project", "egress": "none", "replace": true, "command": "ls /tmp/f"}); r.field("replaced") != "true" || r.field("exit_code") == "0" {
		t.Errorf("replaced by a script: %v", r.Fields)
	}
	other = c.must("sandbox_create", args{"key": "my project"}).field("sandbox_id")
	if r := c.call("sandbox_exec", args{"sandbox_id": first, "command": "true"}); !r.IsError {
		t.Errorf("the one before: %+v", r)
	}
	c.must("sandbox_destroy", args{"sandbox_id": other})
	ids := map[string]bool{}
	var mu sync.Mutex
	for range 10 {
		wg.Go(func() {
			id := c.must("sandbox_create", want).field("sandbox_id")
			mu.Lock()
			defer mu.Unlock()
			ids[id] = true
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("made at once: %v", ids)
	}
	for id := range ids {
		c.must("sandbox_destroy", args{"sandbox_id": id})
	}
}

// TestMCPRestarted checks that a sandbox whose processes are gone is restarted with its files, and that the
// result says so.
func TestMCPRestarted(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_SANDBOX_ROOT="+b.mkdir("kept")) // real root's runner must be able to reach it
	c := b.mcp()
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	if r := c.must("sandbox_exec", args{"sandbox_id": box, "command": "echo kept > /tmp/f"}); r.Fields["restarted"] != nil {
		t.Errorf("at first: %v", r.Fields)
	}
	kill(runners(true))
	eventually(t, "the sandbox to be gone", func() bool { return len(runners(true))+len(named("demesne-init")) == 0 })
	var r answer
	eventually(t, "the server to notice", func() bool {
		r = c.call("sandbox_exec", args{"sandbox_id": box, "command": "cat /tmp/f"})
		return !r.IsError
	})
	if r.field("stdout") != "kept\n" || r.field("restarted") != "true" {
		t.Errorf("after its runner was killed: %v", r.Fields)
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}

// TestMCPRestartedLater checks that the first command a model runs in a restarted sandbox reports the restart,
// whichever tool caused it.
func TestMCPRestartedLater(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_SANDBOX_ROOT="+b.mkdir("kept"), "DEMESNE_TOOLS=files")
	b.file("up.txt", "up\n", 0o644)
	c := b.mcp()
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	for tool, a := range map[string]args{
		"sandbox_upload":   {"src": b.dir + "/up.txt", "dst": "/tmp/up.txt"},
		"sandbox_write":    {"path": "/tmp/w", "content": "w"},
		"sandbox_ls":       {"path": "/tmp"},
		"sandbox_download": {"src": "/etc/hostname"},
	} {
		b.must("stop", box)
		a["sandbox_id"] = box
		c.must(tool, a)
		c.must(tool, a)
		if r := c.must("sandbox_exec", args{"sandbox_id": box, "command": "true"}); r.field("restarted") != "true" {
			t.Errorf("after %s: %v", tool, r.Fields)
		}
		if r := c.must("sandbox_exec", args{"sandbox_id": box, "command": "true"}); r.Fields["restarted"] != nil {
			t.Errorf("after %s, a second time: %v", tool, r.Fields)
		}
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}
