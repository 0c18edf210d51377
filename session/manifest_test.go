package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/internal/fsutil"
)

// directory creates a directory with a few files, and opens it.
func directory(t *testing.T) (string, *os.Root) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	for name, text := range map[string]string{"a": "one", "sub/b": "two", "sub/c": ""} {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

func made(t *testing.T, root *os.Root) *Manifest {
	t.Helper()
	m, err := makeManifest(root)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMakeManifest checks that hashes agree with sha256sum, and that links are not followed and FIFOs do not block.
func TestMakeManifest(t *testing.T) {
	dir, root := directory(t)
	secret := filepath.Join(t.TempDir(), "secret")
	os.WriteFile(secret, []byte("x"), 0o644)
	os.Symlink(secret, dir+"/link")
	os.Symlink(filepath.Dir(secret), dir+"/dir")
	syscall.Mkfifo(dir+"/fifo", 0o600)
	os.WriteFile(dir+"/caf\xe9", nil, 0o644)
	os.WriteFile(dir+"/huge", nil, 0o644)
	os.Truncate(dir+"/huge", bytesMax+1)
	m := made(t, root)
	want := fmt.Sprint([]manifestFile{
		{Path: "a", Size: 3, SHA256: "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed", Mode: "0644"},
		{Path: "dir", Size: int64(len(filepath.Dir(secret))), Link: filepath.Dir(secret)},
		{Path: "link", Size: int64(len(secret)), Link: secret},
		{Path: "sub/b", Size: 3, SHA256: "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3", Mode: "0644"},
		{Path: "sub/c", Size: 0, SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", Mode: "0644"},
	})
	if got := fmt.Sprint(m.Files); got != want || m.Uncovered != 3 {
		t.Errorf("%s, %d uncovered", got, m.Uncovered)
	}
}

func TestMakeBounded(t *testing.T) {
	dir, root := directory(t)
	for i := range filesMax + 100 {
		if err := os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if m := made(t, root); len(m.Files) != filesMax || m.Uncovered == 0 {
		t.Errorf("%d files, %d uncovered", len(m.Files), m.Uncovered)
	}
}

// TestMakeDeep checks that a very deep tree is covered down to a bounded depth.
func TestMakeDeep(t *testing.T) {
	dir, root := directory(t)
	if err := os.MkdirAll(dir+strings.Repeat("/d", 2*fsutil.WalkDepth), 0o755); err != nil {
		t.Fatal(err)
	}
	if m := made(t, root); len(m.Files) != 3 || m.Uncovered != 1 {
		t.Errorf("%d files, %d uncovered", len(m.Files), m.Uncovered)
	}
}

func TestDifferences(t *testing.T) {
	for _, c := range []struct {
		change func(dir string) error
		want   string
	}{
		{func(string) error { return nil }, ""},
		{func(d string) error { return os.WriteFile(d+"/a", []byte("One"), 0o644) }, `changed "a"`},
		{func(d string) error { return os.Remove(d + "/sub/c") }, `missing "sub/c"`},
		{func(d string) error { return os.WriteFile(d+"/new", nil, 0o644) }, `new "new"`},
		{func(d string) error { return os.Symlink("a", d+"/link") }, `new "link"`},
		{func(d string) error { return errors.Join(os.Remove(d+"/a"), os.Symlink("sub/b", d+"/a")) }, `changed "a" from a file to a link to "sub/b"`},
		{func(d string) error {
			return errors.Join(os.Remove(d+"/sub/l"), os.Symlink("/etc/passwd", d+"/sub/l"))
		}, `changed "sub/l" from a link to "b" to a link to "/etc/passwd"`},
		{func(d string) error {
			return errors.Join(os.Remove(d+"/sub/l"), os.WriteFile(d+"/sub/l", nil, 0o644))
		}, `changed "sub/l" from a link to a file`},
		{func(d string) error { return os.Chmod(d+"/a", os.ModeSetuid|0o755) }, `changed "a" from mode 0644 to 4755`},
		{func(d string) error { return syscall.Mkfifo(d+"/fifo", 0o600) }, `uncovered files: 1, in the manifest 0`},
	} {
		dir, root := directory(t)
		if err := os.Symlink("b", dir+"/sub/l"); err != nil {
			t.Fatal(err)
		}
		m := made(t, root)
		if err := errors.Join(m.write(manifestPath(dir)), c.change(dir)); err != nil {
			t.Fatal(err)
		}
		m, err := ReadManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Differences(root); err != nil || strings.Join(got, ", ") != c.want {
			t.Errorf("%v %v, want %s", got, err, c.want)
		}
	}
}

func TestReadManifest(t *testing.T) {
	if _, err := ReadManifest(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"", "[]", `{"version":1}`, `{"version":3}`, `{"version":2,"files":[{"path":"../x"}]}`, `{"version":2,"files":[{"path":"/x"}]}`} {
		if m, err := parseManifest(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %+v", text, m)
		}
	}
}

// TestPruneManifests checks that pruneManifests removes manifests of removed directories and old unfinished files, and keeps a
// manifest that is being written.
func TestPruneManifests(t *testing.T) {
	root := t.TempDir()
	if n, err := pruneManifests(root, time.Now()); n != 0 || err != nil {
		t.Errorf("nothing there: %d %v", n, err)
	}
	for _, name := range []string{"here", "gone"} {
		if err := (&Manifest{Version: 1}).write(manifestPath(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(root, ".manifests")
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{".new-1", ".new-2", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(root, "here"), 0o700), os.Chtimes(filepath.Join(dir, ".new-1"), old, old), os.Chtimes(filepath.Join(dir, "other"), old, old)); err != nil {
		t.Fatal(err)
	}
	if n, err := pruneManifests(root, time.Now().Add(-time.Minute)); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	left, err := filepath.Glob(dir + "/*")
	if got := strings.ReplaceAll(strings.Join(left, " "), dir+"/", ""); err != nil || got != ".new-2 here.json other" {
		t.Errorf("left: %s %v", got, err)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add(`{"version":2,"files":[{"path":"a","size":1,"sha256":"00"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseManifest(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Path) {
				t.Errorf("%q", file.Path)
			}
		}
	})
}
