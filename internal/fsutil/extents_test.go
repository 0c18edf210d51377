package fsutil

import (
	"os"
	"slices"
	"testing"
)

// TestExtents checks that the extents of a file are those that were written.
func TestExtents(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{1 << 20, 8<<20 + 5} {
		if _, err := f.WriteAt([]byte("data"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	list, err := Extents(int(f.Fd()), 16<<20, 100)
	if want := []Extent{{1 << 20, ExtentBlock}, {8 << 20, ExtentBlock}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("%v, %v, want %v", list, err, want)
	}
	list, err = Extents(int(f.Fd()), 16<<20, 1)
	if want := []Extent{{1 << 20, 7<<20 + ExtentBlock}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("at most one: %v, %v, want %v", list, err, want)
	}
}

// TestJoin checks that a long list is shortened by filling its small holes.
func TestJoin(t *testing.T) {
	var list []Extent
	for i := range int64(10) {
		list = join(list, Extent{i * 2 * ExtentBlock, ExtentBlock}, ExtentBlock)
	}
	if len(list) != 10 {
		t.Fatalf("%v", list)
	}
	list = join(list, Extent{19 * ExtentBlock, ExtentBlock}, ExtentBlock)
	if list = joinAll(list, 2*ExtentBlock); len(list) != 1 || list[0] != (Extent{0, 20 * ExtentBlock}) {
		t.Errorf("%v", list)
	}
}
