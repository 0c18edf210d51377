package fsutil

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		if err := WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(f)
		f.Close()
		if string(got) != text {
			t.Errorf("got %q", got)
		}
	}
	if err := WriteFile(filepath.Join(dir, "none", "f"), nil, 0o600); err == nil {
		t.Error("a file without a directory")
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

// TestRemoveAll removes files and trees, also unreadable ones, and follows no link.
func TestRemoveAll(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "kept")
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, []byte("x"), 0o600))
	must(os.WriteFile(path("file"), make([]byte, 8192), 0o600))
	must(os.Symlink(outside, path("link")))
	must(os.MkdirAll(path("tree/a/b/c"), 0o700))
	must(os.WriteFile(path("tree/a/b/f"), nil, 0o600))
	must(os.Symlink(outside, path("tree/a/link")))
	must(os.Chmod(path("tree/a/b"), 0))
	must(os.Mkdir(path("empty"), 0o700))
	for _, name := range []string{"file", "link", "tree", "empty"} {
		freed, err := RemoveAll(int(at.Fd()), name)
		if err != nil || Exists(path(name)) || name == "file" && freed < 8192 {
			t.Errorf("remove %s: freed %d, %v", name, freed, err)
		}
	}
	if _, err := RemoveAll(int(at.Fd()), "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("remove a missing name: %v", err)
	}
	if !Exists(outside) {
		t.Error("a link was followed")
	}
}
