package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLogFile(t *testing.T) {
	root := t.TempDir()
	path, err := outputs{dir: root}.logFile("a-run")
	if err != nil || path != root+"/.egress/a-run.jsonl" {
		t.Fatalf("%s, %v", path, err)
	}
	if info, err := os.Stat(root + "/.egress"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (outputs{dir: root + "/file"}).logFile("x"); err == nil {
		t.Error("a file was taken for a directory")
	}
}

// TestPruneLogs checks that only old, unlocked logs are removed: not new or locked ones, links, or other files.
func TestPruneLogs(t *testing.T) {
	root, old := t.TempDir(), time.Now().Add(-time.Hour)
	if n, err := pruneLogs(root, time.Now()); n != 0 || err != nil {
		t.Errorf("no logs: %d, %v", n, err)
	}
	make := func(name string, at time.Time) string {
		path, err := outputs{dir: root}.logFile(name)
		if err == nil {
			err = os.WriteFile(path, []byte("{}\n"), 0o600)
		}
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone, young, held := make("gone", old), make("young", time.Now()), make("held", old)
	other := strings.TrimSuffix(make("x", old), ".jsonl")
	if err := os.Rename(other+".jsonl", other); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(young, filepath.Dir(young)+"/link.jsonl"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if n, err := pruneLogs(root, time.Now().Add(-time.Minute)); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	for path, want := range map[string]bool{gone: false, young: true, held: true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestTidyLog checks that a log is kept only if it is not empty.
func TestTidyLog(t *testing.T) {
	empty, full := t.TempDir()+"/empty", t.TempDir()+"/full"
	if os.WriteFile(empty, nil, 0o600) != nil || os.WriteFile(full, []byte("{}\n"), 0o600) != nil {
		t.Fatal("no files")
	}
	if got := tidyLog(empty); got != "" || exists(empty) {
		t.Errorf("empty: %q", got)
	}
	if got := tidyLog(full); got != full || !exists(full) {
		t.Errorf("full: %q", got)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
