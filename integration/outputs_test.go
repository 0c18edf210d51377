package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutputsEmpty checks that empty output directories are removed at once, whichever program created them.
func TestOutputsEmpty(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	if r := c.must("sandbox_script", args{"command": "true"}); r.field("exit_code") != "0" {
		t.Errorf("%+v", r)
	}
	c.must("sandbox_destroy", args{"sandbox_id": c.must("sandbox_create", args{}).field("sandbox_id")})
	b.must("create", "--name", "one")
	b.must("rm", "one")
	named := b.mkdir("named")
	b.must("create", "--name", "two", "--out", named)
	b.must("rm", "two")
	if got := outputsOf(b); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	if _, err := os.Stat(named); err != nil {
		t.Error(err)
	}
	if r := c.must("sandbox_script", args{"command": "echo text"}); readFile(t, r.field("output_dir")+"/stdout.log") != "text\n" {
		t.Errorf("%+v", r)
	}
}

// outputsOf lists the existing output directories.
func outputsOf(b *box) (list []string) {
	for _, name := range names(b.out) {
		if !strings.HasPrefix(name, ".") {
			list = append(list, name)
		}
	}
	return list
}

// TestOutputsGC checks that gc --outputs removes unused directories, but none that a live sandbox, a stopped one
// or a job uses.
func TestOutputsGC(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	b.must("run", "--", "sh", "-c", "mkdir -p /out/shut/d; chmod 0 /out/shut; ln -s /etc /out/l")
	old := outputsOf(b)
	c.must("sandbox_script", args{"command": "echo text"})
	b.must("create", "--name", "live")
	b.must("create", "--name", "kept")
	b.must("exec", "live", "-c", "echo > /out/f")
	b.must("exec", "kept", "-c", "echo > /out/f")
	b.must("stop", "kept")
	job := strings.TrimSpace(b.must("run", "--background", "--", "sh", "-c", "echo > /out/f; while ! test -e /out/end; do sleep 0.02; done"))
	mine := b.mkdir("h/.demesne/out/mine")
	used := func() (list []string) {
		eventually(t, "the job to have its directory", func() bool {
			list, _ = filepath.Glob(b.out + "/*/f")
			return len(list) == 3
		})
		return list
	}()
	if len(old) != 1 {
		t.Fatalf("outputs: %q", old)
	}
	if r := b.must("gc", "--outputs", "--older-than", "1h"); !strings.Contains(r, "removed 0 output directories") {
		t.Errorf("an hour: %s", r)
	}
	if r := b.must("gc", "--outputs", "--older-than", "1ms"); !strings.Contains(r, "removed 2 output directories") {
		t.Errorf("%s", r)
	}
	for _, path := range append(used, mine) {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if got := outputsOf(b); len(got) != 4 {
		t.Errorf("left: %q", got)
	}
	for _, path := range used {
		os.WriteFile(filepath.Dir(path)+"/end", nil, 0o644)
	}
	b.must("wait", job)
	b.must("rm", "live", "kept")
	b.keepsJobs()
}

// TestOutputsBound checks that a server keeps no more output directories than $DEMESNE_MAX_OUTPUTS allows, in addition to
// directories in use. The oldest belongs to a sandbox of the command line, which a model does not see.
func TestOutputsBound(t *testing.T) {
	b := newBox(t)
	b.create("--name", "live")
	for range 8 {
		b.must("run", "--", "sh", "-c", "echo > /out/f")
	}
	b.extra = append(b.extra, "DEMESNE_MAX_OUTPUTS=3")
	b.mcp()
	eventually(t, "the server to remove what is too much", func() bool { return len(outputsOf(b)) == 4 })
	b.must("exec", "live", "-c", "echo > /out/f")
	b.must("rm", "live")
}
