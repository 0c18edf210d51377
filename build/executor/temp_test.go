package executor

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestTempDir checks that a build removes what killed builds left, and never what a running one has, even one that has
// just made its directory.
func TestTempDir(t *testing.T) {
	for name, v := range map[string]string{"XDG_RUNTIME_DIR": t.TempDir(), "TMPDIR": t.TempDir()} {
		t.Setenv(name, v)
	}
	for _, root := range []string{secretRoot(), contextRoot()} {
		left := filepath.Join(root, tempPrefix+"left")
		if err := os.MkdirAll(left+"/d", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left+"/d/secret", []byte("x"), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(t.TempDir(), filepath.Join(root, tempPrefix+"link")); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := sweepTemp(); err != nil {
					t.Error(err)
				}
				dir, remove, err := tempDir()
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(dir+"/secret", nil, 0o400); err != nil {
					t.Error(err)
				}
				remove()
			}
		})
	}
	wg.Wait()
	for _, root := range []string{secretRoot(), contextRoot()} {
		all, err := filepath.Glob(root + "/*")
		if err != nil || len(all) != 1 || !strings.HasSuffix(all[0], "link") {
			t.Errorf("left: %q %v", all, err)
		}
	}
}
