package fsutil

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEvalSymlinks compares paths with and without links with package filepath, and resolves the existing parts of others.
func TestEvalSymlinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"to": "real", "dangling": "nowhere", "loop": "loop", "real/up": ".."} {
		os.Mkdir(dir+"/real", 0o700)
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(dir+"/real/file", nil, 0o600)
	for path, existing := range map[string]string{
		"": "", "/": "", "/.": "", "/real/": "/real", "/real/../real/file": "/real/file", "/to": "/real", "/to/file": "/real/file",
		"/real/up/to/none": "/real/none", "/real/none/deep": "/real/none/deep", "/to/none": "/real/none", "/dangling": "/dangling",
		"/dangling/x": "/dangling/x", "/loop/x": "/loop/x", "/real/file/x": "/real/file/x", "/to/file/x/y": "/real/file/x/y",
	} {
		want, wrong := filepath.EvalSymlinks(dir + path)
		if got, err := EvalSymlinks(dir + path); got != want || (err == nil) != (wrong == nil) {
			t.Errorf("%q: %q, %v, want %q, %v", path, got, err, want, wrong)
		}
		if got := WithoutLinks(dir + path); got != dir+existing {
			t.Errorf("%q: %q, want %q", path, got, dir+existing)
		}
	}
	t.Chdir(dir)
	if got, err := EvalSymlinks("to/file"); got != "real/file" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got := WithoutLinks("/"); got != "/" {
		t.Errorf("%q", got)
	}
}
