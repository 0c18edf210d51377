package tarball

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// tree lists the files below dir as "path=content".
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files = append(files, rel+"="+string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// TestPartDeliver: an existing directory is merged with and an existing file is replaced. Files and directories never
// replace each other.
func TestPartDeliver(t *testing.T) {
	for _, c := range []struct {
		name  string
		there map[string]string
		fails bool
		want  string
	}{
		{"nothing there", nil, false, "as/f=new as/sub/g=new"},
		{"a directory", map[string]string{"as/f": "old", "as/h": "old"}, false, "as/f=new as/h=old as/sub/g=new"},
		{"a file in the place of the directory", map[string]string{"as": "old"}, true, "as=old"},
		{"a file in the place of one below", map[string]string{"as/sub": "old"}, true, ""},
		{"a directory in the place of a file", map[string]string{"as/f/x": "old"}, true, ""},
	} {
		dir := t.TempDir()
		for name, text := range c.there {
			os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := NewPart(openRoot(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		p.Dir.MkdirAll("d/sub", 0o755)
		p.Dir.WriteFile("d/f", []byte("new"), 0o600)
		p.Dir.WriteFile("d/sub/g", []byte("new"), 0o600)
		err = p.Deliver("d", "as")
		p.Remove()
		got := strings.Join(tree(t, dir), " ")
		if (err != nil) != c.fails || c.want != "" && got != c.want || strings.Contains(got, partPrefix) {
			t.Errorf("%s: %v, %s", c.name, err, got)
		}
	}
}

// TestPartSwapped: a directory is replaced by a link to another one during delivery. Nothing is written there.
func TestPartSwapped(t *testing.T) {
	dir := t.TempDir()
	mkdirs(t, dir, "as/sub", "other")
	if err := os.Symlink("../other", dir+"/as/link"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for ctx.Err() == nil {
			unix.Renameat2(unix.AT_FDCWD, dir+"/as/sub", unix.AT_FDCWD, dir+"/as/link", unix.RENAME_EXCHANGE)
		}
	})
	for range 500 {
		p, err := NewPart(openRoot(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		mkdirs(t, filepath.Join(dir, p.name), "d/sub/deep")
		p.Deliver("d", "as") // may be refused
		p.Remove()
	}
	cancel()
	swapper.Wait()
	if names, err := os.ReadDir(dir + "/other"); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func mkdirs(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartSweep: a Part without an owner is removed, a locked one is not, and a link is not followed.
func TestPartSweep(t *testing.T) {
	dir, victim := t.TempDir(), t.TempDir()
	root := openRoot(t, dir)
	live, err := NewPart(root)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(victim+"/f", nil, 0o600)
	if err := os.Symlink(victim, dir+"/"+partPrefix+"link"); err != nil {
		t.Fatal(err)
	}
	root.MkdirAll(partPrefix+"dead/d", 0o700)
	if err := sweepParts(root); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	names := make([]string, 0, len(left))
	for _, e := range left {
		names = append(names, e.Name())
	}
	if !slices.Contains(names, live.name) || slices.Contains(names, partPrefix+"dead") {
		t.Errorf("left: %q", names)
	}
	if _, err := os.Stat(victim + "/f"); err != nil {
		t.Error(err)
	}
	live.Remove()
	// With many concurrent makers, none loses its own Part.
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			p, err := NewPart(root)
			if err == nil {
				err = p.Dir.WriteFile("f", []byte("x"), 0o600)
				p.Remove()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
