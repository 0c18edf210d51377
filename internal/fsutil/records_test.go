package fsutil

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRecords(t *testing.T) {
	type record struct{ Name string }
	r := Records[record]{Dir: filepath.Join(t.TempDir(), "records"), Max: 32}
	if all, err := r.Load(); err != nil || len(all) != 0 {
		t.Fatalf("new directory: %v, %v", all, err)
	}
	for _, name := range []string{"old", "new"} {
		if err := r.Put("a", &record{name}); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(r.path("a")); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := r.Put("a", &record{"a name that is longer than the bound"}); !errors.Is(err, ErrRecordSize) {
		t.Errorf("a large record: %v", err)
	}
	if v, err := r.Get("a"); err != nil || v.Name != "new" {
		t.Errorf("%v, %v", v, err)
	}
	if err := CreateRecord(r.path("a"), &record{"third"}, r.Max); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create an existing record: %v", err)
	}
	os.WriteFile(r.path("large"), make([]byte, 33), 0o600)
	if _, err := r.Get("large"); !errors.Is(err, ErrRecordSize) {
		t.Errorf("read a large record: %v", err)
	}
	if _, err := r.Load(); !errors.Is(err, ErrRecordSize) {
		t.Errorf("load a large record: %v", err)
	}
	r.Remove("large")
	os.Symlink("a.json", r.path("link"))
	if _, err := r.Get("link"); err == nil {
		t.Error("a link was followed")
	}
	r.Remove("link")
	os.WriteFile(r.path("cut"), []byte(`{"Name"`), 0o600)
	half := filepath.Join(r.Dir, ".a.json-123")
	os.WriteFile(half, []byte(`{"Na`), 0o600)
	all, err := r.Load()
	if err != nil || len(all) != 1 || all["a"] == nil || Exists(half) {
		t.Errorf("%v, %v, half %t", all, err, Exists(half))
	}
	if ids, err := r.IDs(); err != nil || len(ids) != 2 {
		t.Errorf("%v, %v", ids, err)
	}
	if err := r.Remove("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove a record that does not exist: %v", err)
	}
}
