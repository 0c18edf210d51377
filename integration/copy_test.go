package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// disk returns a file's size and the bytes allocated for it.
func disk(t *testing.T, path string) (size, taken int64) {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size(), st.Sys().(*syscall.Stat_t).Blocks * 512
}

const hole = 90 << 20 // 94371840

// TestCopySparse checks that holes of a file remain holes in its copy, in every direction (F25).
func TestCopySparse(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one", "--share", "mcp")
	b.create("--name", "two", "--share", "mcp")
	c := b.mcp()
	b.must("exec", "one", "-c", "mkdir d; cd d; truncate -s 90M empty; truncate -s 89M f; printf begin | dd of=f conv=notrunc status=none; printf end >> f; truncate -s 90M f")
	b.must("cp", "one:/workspace/d", b.dir+"/down")
	b.must("cp", b.dir+"/down/f", "two:/workspace/in")
	b.must("cp", "one:/workspace/d/f", "two:/workspace/across")
	down := c.must("sandbox_download", args{"sandbox_id": "one", "src": "/workspace/d/f"}).field("path")
	for _, path := range []string{b.dir + "/down/empty", b.dir + "/down/f", down} {
		if size, taken := disk(t, path); size != hole || taken > 1<<20 {
			t.Errorf("%s: %d bytes, %d on the disk", path, size, taken)
		}
	}
	const look = "for f in in across; do stat -c '%s' $f; test $(stat -c '%b' $f) -lt 2048 && echo sparse; head -c 5 $f; tail -c +93323265 $f | head -c 3; echo; cmp $f in; done"
	if got := b.must("exec", "two", "-c", look); got != "94371840\nsparse\nbeginend\n94371840\nsparse\nbeginend\n" {
		t.Errorf("in the other sandbox: %s", got)
	}
	b.must("rm", "one", "two")
}

// TestCopyTimes checks that files and directories keep their times in every direction.
func TestCopyTimes(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one", "--share", "mcp")
	b.create("--name", "two", "--share", "mcp")
	b.must("exec", "one", "-c", "mkdir d; echo f > d/f; touch -d @1600000000.5 d/f d")
	b.must("cp", "one:/workspace/d", b.dir+"/down")
	b.must("cp", "one:/workspace/d", "two:/workspace/across")
	b.must("cp", b.dir+"/down", "two:/workspace/in")
	for _, name := range []string{"/down", "/down/f"} {
		if st, err := os.Stat(b.dir + name); err != nil || st.ModTime().UnixMilli() != 1_600_000_000_500 {
			t.Errorf("%s: %v, %v", name, st.ModTime(), err)
		}
	}
	if got := b.must("exec", "two", "-c", "stat -c %.1Y across across/f in in/f | uniq"); got != "1600000000.5\n" {
		t.Errorf("in the other sandbox: %q", got)
	}
	b.must("rm", "one", "two")
}

// TestCopyCeiling checks that the operator's ceiling holds for every copy, and that a copy that exceeds it leaves
// no files (F25).
func TestCopyCeiling(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one", "--share", "mcp")
	b.create("--name", "two", "--share", "mcp")
	b.must("exec", "one", "-c", "mkdir -p d/sub; head -c 700k /dev/zero > d/a; head -c 700k /dev/zero > d/sub/b; mkdir many; cd many; touch 1 2 3 4 5 6 7 8")
	b.must("cp", "one:/workspace/d", b.dir+"/d")
	b.must("cp", "one:/workspace/many", b.dir+"/many")
	b.extra = append(b.extra, "DEMESNE_MAX_COPY_BYTES=1m", "DEMESNE_MAX_COPY_FILES=6", "DEMESNE_ALLOWED_PATHS="+b.dir)
	c := b.mcp()
	variable := map[string]string{"d": "$DEMESNE_MAX_COPY_BYTES", "many": "$DEMESNE_MAX_COPY_FILES"}
	for what, says := range map[string]string{"d": "more than 1048576 bytes", "many": "more than 6 files and directories"} {
		for _, a := range [][]string{
			{"one:/workspace/" + what, b.dir + "/out-" + what}, {b.dir + "/" + what, "two:/workspace/in"}, {"one:/workspace/" + what, "two:/workspace/across"},
		} {
			if r := b.demesne("cp", a[0], a[1]); r.code == 0 || !strings.Contains(r.stderr, says) || !strings.Contains(r.stderr, variable[what]) {
				t.Errorf("cp %q: %+v, want %q", a, r, says)
			}
		}
		for tool, a := range map[string]args{
			"sandbox_download": {"sandbox_id": "one", "src": "/workspace/" + what},
			"sandbox_upload":   {"sandbox_id": "two", "src": b.dir + "/" + what, "dst": "/workspace/up"},
		} {
			if r := c.call(tool, a); !r.IsError || !strings.Contains(r.Text, says) {
				t.Errorf("%s %s: %+v, want %q", tool, what, r, says)
			}
		}
	}
	if out, _ := filepath.Glob(b.dir + "/out-*"); len(out) > 0 {
		t.Errorf("left here: %q", out)
	}
	if downs, _ := filepath.Glob(b.out + "/*/downloads/*"); len(downs) > 0 {
		t.Errorf("left by a download: %q", downs)
	}
	if got := b.must("exec", "two", "-c", "ls -A"); got != "" {
		t.Errorf("left in the other sandbox: %q", got)
	}
	b.must("rm", "one", "two")
}

// TestCopySpecial checks that only files, directories and symbolic links are copied, and that every way of
// copying reports the rest.
func TestCopySpecial(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one", "--share", "mcp")
	b.create("--name", "two", "--share", "mcp")
	dir := b.mkdir("d")
	b.file("d/f", "text\n", 0o644)
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b.extra = append(b.extra, "DEMESNE_ALLOWED_PATHS="+b.dir)
	c := b.mcp()
	for name, says := range map[string]string{"pipe": "is a named pipe", "sock": "is a socket"} {
		if r := b.demesne("cp", dir+"/"+name, "one:/workspace/x"); r.code == 0 || !strings.Contains(r.stderr, says) {
			t.Errorf("cp of a %s: %+v", name, r)
		}
		if r := c.call("sandbox_upload", args{"sandbox_id": "one", "src": dir + "/" + name, "dst": "/workspace/x"}); !r.IsError || !strings.Contains(r.Text, says) {
			t.Errorf("upload of a %s: %+v", name, r)
		}
	}
	if r := b.demesne("cp", dir, "one:/workspace/d"); r.code != 0 || !strings.Contains(r.stderr, `"d/pipe": skipped: a named pipe`) || !strings.Contains(r.stderr, `"d/sock": skipped: a socket`) {
		t.Errorf("cp of a directory: %+v", r)
	}
	r := c.must("sandbox_upload", args{"sandbox_id": "one", "src": dir, "dst": "/workspace/d"})
	if !strings.Contains(r.Text, "skipped: d/pipe (a named pipe)") || r.Fields["left_out_count"] != 2.0 {
		t.Errorf("upload of a directory: %+v", r)
	}
	b.must("exec", "one", "-c", "cd d; mkfifo p2; ln -s /etc/shadow l")
	if r := b.demesne("cp", "one:/workspace/d", "two:/workspace/d"); r.code != 0 || !strings.Contains(r.stderr, `"d/p2": skipped: a named pipe`) || strings.Contains(r.stderr, "d/l") {
		t.Errorf("cp across: %+v", r)
	}
	if r := b.demesne("cp", "one:/workspace/d", b.dir+"/down"); r.code != 0 || !strings.Contains(r.stderr, `"d/p2": skipped: a named pipe`) || !strings.Contains(r.stderr, `"d/l": skipped: a link`) {
		t.Errorf("cp out: %+v", r)
	}
	r = c.must("sandbox_download", args{"sandbox_id": "one", "src": "/workspace/d"})
	if !strings.Contains(r.Text, "skipped: d/l (a link)") || !strings.Contains(r.Text, "d/p2 (a named pipe)") || r.Fields["left_out_count"] != 2.0 {
		t.Errorf("download of a directory: %+v", r)
	}
	for _, what := range []string{"one:/workspace/d/p2", "one:/dev/null"} {
		if r := b.demesne("cp", what, b.dir+"/x"); r.code == 0 || !strings.Contains(r.stderr, "only files and directories are copied") {
			t.Errorf("cp %s: %+v", what, r)
		}
		if r := b.demesne("cp", what, "two:/workspace/x"); r.code == 0 || !strings.Contains(r.stderr, "only files and directories are copied") {
			t.Errorf("cp %s to another sandbox: %+v", what, r)
		}
	}
	b.must("rm", "one", "two")
}

// TestCopyKernelFiles checks that files of size 0 that the kernel generates on read are copied with their
// content.
func TestCopyKernelFiles(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one", "--share", "mcp")
	want := b.must("exec", "one", "--", "cat", "/proc/version")
	b.must("cp", "one:/proc/version", b.dir+"/v")
	if got := readFile(t, b.dir+"/v"); got != want {
		t.Errorf("/proc/version: %q, want %q", got, want)
	}
	c := b.mcp()
	down := c.must("sandbox_download", args{"sandbox_id": "one", "src": "/proc/version"})
	if got := readFile(t, down.field("path")); got != want {
		t.Errorf("download of /proc/version: %q", got)
	}
	b.must("cp", "/proc/version", "one:/workspace/v")
	if got := b.must("exec", "one", "-c", "cat v"); got != want {
		t.Errorf("/proc/version, copied in: %q", got)
	}
	b.must("rm", "one")
}
