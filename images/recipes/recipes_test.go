package recipes

import (
	"io/fs"
	"strings"
	"testing"
)

// TestTable checks that each recipe has a Containerfile, a size, and a tag of its own, which depends on the arguments.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range All() {
		if _, err := fs.Stat(r.Files(), File); err != nil || r.Size <= 0 || r.About == "" {
			t.Errorf("%s: %v, %+v", r.Name, err, r)
		}
		tag := r.Tag()
		if len(tag) != tagDigits || seen[tag] || r.Tag("B=2", "A=1") != r.Tag("A=1", "B=2") || r.Tag("A=1") == tag {
			t.Errorf("%s: tag %s", r.Name, tag)
		}
		seen[tag] = true
	}
	dirs, err := fs.ReadDir(tree, ".")
	if err != nil || len(dirs) != len(table) {
		t.Errorf("%d directories for %d recipes: %v", len(dirs), len(table), err)
	}
}

// TestBases checks that every recipe is built on another one, or on nothing.
func TestBases(t *testing.T) {
	for _, r := range All() {
		text, err := fs.ReadFile(r.Files(), File)
		if err != nil {
			t.Fatal(err)
		}
		if len(Bases(string(text))) == 0 && !strings.Contains(string(text), "\nFROM scratch\n") {
			t.Errorf("%s: no base that demesne builds", r.Name)
		}
	}
	got := Bases("FROM demesne/node AS x\nARG BASE=demesne/debian\nFROM other\n# FROM demesne/debian\n")
	if len(got) != 2 || got[0].Name != "node" || got[1].Name != "debian" {
		t.Errorf("%+v", got)
	}
}
