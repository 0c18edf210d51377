package layers

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newCache(t *testing.T) Cache {
	t.Helper()
	return Open(t.TempDir(), "single-0-0")
}

func id(text string) DiffID { return DiffID(fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))) }

func hexOf(text string) string { return strings.TrimPrefix(string(id(text)), "sha256:") }

// put makes a layer with one file in it.
func put(t testing.TB, c Cache, id DiffID) {
	t.Helper()
	w, err := c.Begin(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Dir, "file"), string(id))
	if err := publish(w); err != nil {
		t.Fatal(err)
	}
}

// publish publishes one layer with the size of one block.
func publish(w *Writer) error {
	w.Disk = 4096
	return Publish(w)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// entries returns the names in the directory of the cache.
func entries(t testing.TB, c Cache) []string {
	t.Helper()
	list, err := os.ReadDir(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
