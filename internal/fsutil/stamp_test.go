package fsutil

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func stampOf(t *testing.T, path string) Stamp {
	t.Helper()
	s, err := StampOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStamp checks that a stamp holds until the file changes, in whichever way.
func TestStamp(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"other content of the same size": func(path string) error { return os.WriteFile(path, []byte("two"), 0o600) },
		"other content and the old time": func(path string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(path, st.ModTime(), st.ModTime())
		},
		"replaced": func(path string) error { return WriteFile(path, []byte("one"), 0o600) },
		"removed":  os.Remove,
		"a link to another file": func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			if err := os.WriteFile(path+".new", []byte("one"), 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".new", path)
		},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := stampOf(t, path)
		if !s.Holds() {
			t.Errorf("%s: it does not hold before the change", name)
		}
		for s.CTime >= tick(t, path) { // what Settled guards against
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if s.Holds() {
			t.Errorf("%s: it holds after the change", name)
		}
	}
}

// tick returns the kernel's current file time.
func tick(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.CreateTemp(filepath.Dir(path), "tick")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	defer os.Remove(f.Name())
	return stampOf(t, f.Name()).CTime
}

// TestStampMissing checks the stamps of a missing file and of a directory.
func TestStampMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	file := filepath.Join(dir, "f")
	missing, below := stampOf(t, dir), stampOf(t, file)
	if !missing.Holds() || !below.Holds() || !missing.Settled(time.Now()) {
		t.Error("a missing file has no stable stamp")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if missing.Holds() {
		t.Error("the stamp of a missing directory holds after it was made")
	}
	at := stampOf(t, dir)
	for at.CTime >= tick(t, dir) {
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if at.Holds() || below.Holds() {
		t.Error("a stamp holds after a file was added")
	}
	if new := stampOf(t, file); new.Settled(time.Now()) || !new.Settled(time.Now().Add(time.Minute)) {
		t.Error("a new file must not count as settled")
	}
}
