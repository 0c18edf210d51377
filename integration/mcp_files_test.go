package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMCPFileTools runs the tools of the set files on one sandbox; each step sees the effects of the step before.
func TestMCPFileTools(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_TOOLS=files")
	c := b.mcp()
	box := c.must("sandbox_create", args{}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": box, "command": `printf 'a\000b' > bin; ln -s /etc/hostname link; mkfifo fifo; mkdir -p /srv/deep; echo needle > /srv/deep/hay`})
	for _, step := range []struct {
		tool    string
		args    args
		want    string
		isError bool
	}{
		{"sandbox_write", args{"path": "sub/main.go", "content": "package main\n\nfunc main() {\n\tprintln(1)\n}\n"}, "wrote: sub/main.go (42 bytes)", false},
		{"sandbox_edit", args{"path": "/out/sub/main.go", "old_string": "    println(1)\n", "new_string": "\tprintln(2)\n"}, "edited: /out/sub/main.go (1 replaced, line 4)\nfound by ignoring indentation", false},
		{"sandbox_read", args{"path": "sub/main.go", "offset": "4", "limit": 1}, "     4\t\tprintln(2)\n[truncated; continue with offset=5]\n", false},
		{"sandbox_glob", args{"pattern": "*.go", "path": "/out"}, "-rw-r--r--         42 /out/sub/main.go\n", false},
		{"sandbox_grep", args{"pattern": `println\(\d`, "path": "/out"}, "/out/sub/main.go:4:\tprintln(2)\n", false},
		{"sandbox_grep", args{"pattern": "needle", "path": "/srv", "output_mode": "count"}, "/srv/deep/hay:1\n", false},
		{"sandbox_read", args{"path": "bin"}, "[binary, 3 bytes; read it with encoding=base64]\n", false},
		{"sandbox_read", args{"path": "bin", "encoding": "base64"}, "YQBi\n", false},
		{"sandbox_read", args{"path": "fifo"}, "fifo: is not a regular file", true},
		{"sandbox_read", args{"path": "/none"}, "/none: no such file or directory", true},
		{"sandbox_write", args{"path": "/usr/bin/env", "content": "x"}, "/usr/bin/env: read-only file system", true},
		{"sandbox_write", args{"path": "/usr/new", "content": "x"}, "/usr/new: read-only file system", true},
		{"sandbox_edit", args{"path": "sub/main.go", "old_string": "\n", "new_string": ""}, "sub/main.go: old_string is in the file 5 times (lines 1, 2, 3, 4, 5): include more surrounding text, or set replace_all", true},
		{"sandbox_read", args{"sandbox_id": "nope", "path": "x"}, "attach to sandbox nope: ", true},
	} {
		if step.args["sandbox_id"] == nil {
			step.args["sandbox_id"] = box
		}
		r := c.call(step.tool, step.args)
		if ok := r.Text == step.want || step.isError && strings.HasPrefix(r.Text, step.want); !ok || r.IsError != step.isError {
			t.Errorf("%s %v: %q (isError %v), want %q", step.tool, step.args, r.Text, r.IsError, step.want)
		}
	}
	r := c.must("sandbox_ls", args{"sandbox_id": box})
	for _, want := range []string{" /out/bin\n", " /out/fifo\n", " /out/link -> /etc/hostname\n", " /out/sub\n"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("list: no %q in %s", want, r.Text)
		}
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}

// TestMCPFileToolsConfined checks that a path in a sandbox never leads outside it, whatever links the sandbox
// contains.
func TestMCPFileToolsConfined(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_TOOLS=files")
	c := b.mcp()
	secret := b.file("secret.txt", canary+"\n", 0o666)
	r := c.must("sandbox_create", args{})
	box, out := r.field("sandbox_id"), r.field("output_dir")
	if err := os.Symlink(secret, filepath.Join(out, "planted")); err != nil {
		t.Fatal(err)
	}
	c.must("sandbox_exec", args{"sandbox_id": box, "command": "ln -s " + b.dir + " dir; ln -s /proc/self/root/" + secret + " root; ln -s ../../../../../.." + secret + " up"})
	for _, path := range []string{secret, "planted", "dir/secret.txt", "root", "up", "/proc/1/root" + secret, "/../../.." + secret} {
		for tool, more := range map[string]args{
			"sandbox_read": {}, "sandbox_edit": {"old_string": canary, "new_string": "x"},
			"sandbox_grep": {"pattern": "."}, "sandbox_write": {"content": "x"},
		} {
			more["sandbox_id"], more["path"] = box, path
			if r := c.call(tool, more); strings.Contains(r.Text, canary) {
				t.Errorf("%s %s: %+v", tool, path, r)
			}
		}
		c.must("sandbox_exec", args{"sandbox_id": box, "command": "rm -rf " + b.dir}) // remove files that the tools wrote inside
	}
	if got := readFile(t, secret); got != canary+"\n" {
		t.Errorf("the host's file is %q", got)
	}
	c.must("sandbox_destroy", args{"sandbox_id": box})
}
