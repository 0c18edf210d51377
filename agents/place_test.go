package agents

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestPlace(t *testing.T) {
	host, out, outside := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{"transcript.jsonl", "stderr.log", "usage.json", "usage.jsonl", "results.json"} {
		must(t, os.WriteFile(filepath.Join(host, name), []byte("host's "+name), 0o600))
	}
	secret := filepath.Join(outside, "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	at := func(name string) string { return filepath.Join(out, name) }
	must(t, os.Symlink(secret, at("transcript.jsonl")))
	must(t, os.Link(secret, at("stderr.log")))
	must(t, os.MkdirAll(at("usage.json/deep/deeper"), 0o755))
	must(t, os.Symlink(outside, at("usage.json.sandbox")))
	must(t, os.WriteFile(at("usage.jsonl"), []byte("forged"), 0o644))
	must(t, os.Mkdir(at("results.json"), 0))
	must(t, os.WriteFile(at("attribution.jsonl"), []byte("the agent's own"), 0o644))

	if err := Place(openRoot(t, host), openRoot(t, out)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"transcript.jsonl", "stderr.log", "usage.json", "usage.jsonl", "results.json"} {
		info, err := os.Lstat(at(name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if b, _ := os.ReadFile(at(name)); string(b) != "host's "+name {
			t.Errorf("%s = %q", name, b)
		}
	}
	if b, _ := os.ReadFile(secret); string(b) != "secret" {
		t.Errorf("the link was followed: %q", b)
	}
	if _, err := os.Stat(at("usage.json.sandbox-1/deep/deeper")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(at(".*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestPlaceClosed checks that a sandbox cannot keep the files out by the mode of its /out.
func TestPlaceClosed(t *testing.T) {
	host, out := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "usage.json"), []byte("{}"), 0o600))
	root := openRoot(t, out)
	must(t, os.Chmod(out, 0o500))
	if err := Place(openRoot(t, host), root); err != nil {
		t.Error(err)
	}
}

func TestReplaceFileFails(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o600))
	err := replaceFile(openRoot(t, dir), "a", func(io.Writer) error { return io.ErrShortWrite })
	b, _ := os.ReadFile(filepath.Join(dir, "a"))
	if list, _ := os.ReadDir(dir); err != io.ErrShortWrite || string(b) != "old" || len(list) != 1 {
		t.Errorf("%v, %q, %v", err, b, list)
	}
}

func TestMoveAsideOften(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	for range 12 {
		must(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
		must(t, replaceFile(root, "a", func(io.Writer) error { return nil }))
		must(t, os.Remove(filepath.Join(dir, "a")))
	}
	if list, _ := os.ReadDir(dir); len(list) != 12 {
		t.Errorf("%d directories, want 12", len(list))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
