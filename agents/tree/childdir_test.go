package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestChildDirPlanted checks that no entry that a sandbox planted is used or followed.
func TestChildDirPlanted(t *testing.T) {
	for name, plant := range map[string]func(out, victim string) error{
		"link at child": func(out, victim string) error { return os.Symlink(victim, out+"/child") },
		"file at child": func(out, _ string) error { return os.WriteFile(out+"/child", nil, 0o600) },
		"link at the name": func(out, victim string) error {
			os.Mkdir(out+"/child", 0o700)
			return os.Symlink(victim, out+"/child/x")
		},
		"directory at it":    func(out, _ string) error { return os.MkdirAll(out+"/child/x", 0o700) },
		"dangling at child":  func(out, _ string) error { return os.Symlink("nowhere", out+"/child") },
		"link to out itself": func(out, _ string) error { return os.Symlink(".", out+"/child") },
	} {
		out, victim := t.TempDir(), t.TempDir()
		if err := plant(out, victim); err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := makeChildDir(dir, "x"); !errors.Is(err, errPlanted) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
		dir.Close()
		if left, _ := filepath.Glob(victim + "/*"); len(left) > 0 {
			t.Errorf("%s: made %s", name, left)
		}
	}
	out := t.TempDir()
	dir, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := makeChildDir(dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	removeChildDir(dir, "x")
	if _, err := os.Lstat(out + "/child"); err == nil {
		t.Error("left child")
	}
}
