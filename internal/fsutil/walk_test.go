package fsutil

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// open makes a directory with the given names, as directories if they end in a slash, and opens it.
func open(t *testing.T, names ...string) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(p, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(p, []byte(name), 0o644))
		}
		if err != nil {
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

func walked(root *os.Root, most int) (paths []string, missed int) {
	missed = Walk(root, most, func(e WalkEntry) bool {
		paths = append(paths, e.Path)
		return true
	})
	return paths, missed
}

func TestWalk(t *testing.T) {
	dir, root := open(t, "b/2", "b/1", "a", "c/")
	if err := os.Symlink("/", dir+"/d"); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]string{
		100: "[a b b/1 b/2 c d] 0", 6: "[a b b/1 b/2 c d] 0", 5: "[a b b/1 b/2 c] 1", 4: "[a b b/1 b/2] 1",
	} {
		if paths, missed := walked(root, most); fmt.Sprint(paths, missed) != want {
			t.Errorf("at most %d: %v %d, want %s", most, paths, missed, want)
		}
	}
	seen := 0
	if missed := Walk(root, 100, func(WalkEntry) bool { seen++; return seen < 3 }); seen != 3 || missed != 0 {
		t.Errorf("enough: %d seen, %d missed", seen, missed)
	}
}

// TestWalkBounded checks that an endless tree is walked to a limited depth, and a very wide directory up to the
// requested number of entries.
func TestWalkBounded(t *testing.T) {
	_, deep := open(t, strings.Repeat("d/", 2*WalkDepth))
	if paths, missed := walked(deep, 10_000); len(paths) != WalkDepth+1 || missed != 1 {
		t.Errorf("deep: %d visited, %d missed", len(paths), missed)
	}
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("%04d", i))
	}
	_, wide := open(t, names...)
	if paths, missed := walked(wide, 50); len(paths) != 50 || missed != 1 {
		t.Errorf("wide: %d visited, %d missed", len(paths), missed)
	}
}

func TestOpen(t *testing.T) {
	dir, root := open(t, "sub/file", "other")
	if err := errors.Join(os.Symlink("../other", dir+"/sub/link"), os.Symlink("file", dir+"/sub/near"), syscall.Mkfifo(dir+"/sub/fifo", 0o600), os.Mkdir(dir+"/shut", 0)); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	Walk(root, 100, func(e WalkEntry) bool {
		if info, err := e.Info(); err != nil || info.Name() != e.Name() {
			t.Errorf("%s: %v, %v", e.Path, info, err)
		}
		f, err := e.Open()
		if err != nil {
			got[e.Path] = "refused"
			return true
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		got[e.Path] = string(b)
		return true
	})
	if got["sub/file"] != "sub/file" || got["sub/link"] != "refused" || got["sub/near"] != "refused" || got["sub/fifo"] != "" || got["other"] != "other" {
		t.Errorf("%v", got)
	}
}

// TestWalkSwapped checks that a directory that is replaced by a link after it was seen counts as missed.
func TestWalkSwapped(t *testing.T) {
	dir, root := open(t, "a/mine", "b/other")
	var seen []string
	missed := Walk(root, 100, func(e WalkEntry) bool {
		seen = append(seen, e.Path)
		if e.Path == "a" {
			if err := errors.Join(os.Rename(dir+"/a", dir+"/moved"), os.Symlink("b", dir+"/a")); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	if got := fmt.Sprint(seen); got != "[a b b/other]" || missed != 1 {
		t.Errorf("%s, %d missed", got, missed)
	}
}
