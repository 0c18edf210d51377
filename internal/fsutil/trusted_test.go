package fsutil

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadGuarded checks which files are refused: other owners', other kinds and other sizes.
func TestReadGuarded(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, shown, open, fifo := file("own", 0o600), file("shown", 0o644), file("open", 0o666), filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path             string
		most             int64
		private, trusted string // parts of the errors; empty: the file is read
	}{
		{own, 4, "", ""}, {own, 3, "more than 3 bytes", "more than 3 bytes"}, {shown, 9, "other users can read it", ""},
		{open, 9, "other users can read it", "other users can write it"}, {fifo, 9, "not a file", "not a file"}, {link, 9, "too many levels", ""},
		{dir, 9, "not a file", "not a file"}, {filepath.Join(dir, "none"), 9, "no such file", "no such file"},
	} {
		for name, want := range map[string]string{"private": c.private, "trusted": c.trusted} {
			read := map[string]func(string, int64) ([]byte, error){"private": ReadPrivate, "trusted": ReadTrusted}[name]
			text, err := read(c.path, c.most)
			if want == "" && (err != nil || string(text) != "text") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s %s: %q, %v, want %q", name, filepath.Base(c.path), text, err, want)
			}
		}
	}
}
