package nstest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Layer makes a directory with files, from name to content. A name that ends in "/" is a directory. Content that
// starts with "→" makes a link, "!" a whiteout, "|" a fifo.
func Layer(t testing.TB, files map[string]string) *os.File {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case strings.HasPrefix(content, "→"):
			err = os.Symlink(strings.TrimPrefix(content, "→"), path)
		case content == "!":
			err = unix.Mknod(path, unix.S_IFCHR, 0)
		case content == "|":
			err = unix.Mkfifo(path, 0o644)
		default:
			err = os.WriteFile(path, []byte(content), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Dir returns a directory for Layout.Kept on the disk that the tests are on.
func Dir(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Tmpfs returns a new directory on a tmpfs of its own, as the runner has one.
func Tmpfs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// FDs returns how many descriptors this process has open, plus the one used to count them.
func FDs(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// Open opens a file and closes it at the end of the test.
func Open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Content reads a file of a tree without following a link. For a link it returns "→" and the target, for a missing
// file "none", and for other kinds the fs.FileMode.
func Content(root, name string) string {
	path := filepath.Join(root, name)
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "none"
	case err != nil:
		return err.Error()
	case st.Mode().IsRegular():
		b, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		return string(b)
	case st.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(path)
		return "→" + target
	}
	return st.Mode().String()
}
