package session

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenResolved checks that a link that was put into a resolved path is not followed, at any position.
func TestOpenResolved(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(root+"/a/b", 0o755), os.Symlink("a", root+"/link"), os.Symlink("b", root+"/a/last")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"a/b": nil, "link/b": unix.ELOOP, "a/last": unix.ELOOP, "link": unix.ELOOP, "none": unix.ENOENT,
	} {
		f, err := openResolved(filepath.Join(root, name))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
}
