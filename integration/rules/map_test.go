package rules

import (
	"bytes"
	"flag"
	"fmt"
	"go/doc"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/explanation/packages.md")

// TestRuleMap checks that docs/explanation/packages.md has each package, on its floor, with the first sentence of its
// comment. With -update it writes that document.
func TestRuleMap(t *testing.T) {
	const path = "../../docs/explanation/packages.md"
	var want bytes.Buffer
	want.WriteString("# Packages\n\nEach package, from the roof to the ground. A package imports packages of its own room, and of rooms on lower floors\n" +
		"(TestRuleDirections). `go doc ./runner/engine` prints the manual of a package.\n\n" +
		"`go test ./integration/rules -run TestRuleMap -update` writes this page.\n")
	all := sources(t)
	for at, entries := range floors {
		fmt.Fprintf(&want, "\n## %s\n\n| package | |\n|---|---|\n", strings.Join(entries, ", "))
		var dirs []string
		for dir, p := range all {
			if on, _ := floor(dir); on == at && p.name != "" {
				dirs = append(dirs, dir)
			}
		}
		slices.Sort(dirs)
		for _, dir := range dirs {
			fmt.Fprintf(&want, "| %s | %s |\n", dir, synopsis(all[dir]))
		}
	}
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is out of date, %v: go test ./integration/rules -run TestRuleMap -update", path, err)
	}
}

// synopsis returns the first sentence of a package's comment, as a cell of a table.
func synopsis(p *aPackage) string {
	var d doc.Package
	return strings.ReplaceAll(strings.ReplaceAll(d.Synopsis(p.doc), "|", `\|`), "<", `\<`)
}

// TestRuleMapped checks that the paths and files which CONTRIBUTING.md names exist.
func TestRuleMapped(t *testing.T) {
	text, all := text(t, "CONTRIBUTING.md"), sources(t)
	rooms := map[string]bool{}
	for dir := range all {
		rooms[room(dir)] = true
	}
	for row := range strings.Lines(text) {
		cells := strings.Split(row, " | ")
		for _, place := range strings.Split(strings.TrimPrefix(cells[0], "| "), "; ") {
			dir, files, listed := strings.Cut(place, ": ")
			for _, file := range strings.Split(files, ", ") {
				if !listed || len(cells) < 2 || !regexp.MustCompile(`^\w+\.(go|c)$`).MatchString(file) {
					continue
				}
				if _, err := os.Stat("../../" + dir + "/" + file); err != nil {
					t.Errorf("CONTRIBUTING.md: %v", err)
				}
			}
		}
	}
	files := map[string]bool{}
	tree(t, func(path string) { files[filepath.Base(path)] = true })
	for _, name := range regexp.MustCompile(`\b[a-z0-9_]+\.(?:go|c|sh)\b`).FindAllString(text, -1) {
		if !files[name] { // a walk leaves out the directory where the sentence says it
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", name)
		}
	}
	for _, word := range regexp.MustCompile(`[a-z0-9_]+(/[a-z0-9_.-]+)+`).FindAllString(text, -1) {
		if word = strings.TrimRight(word, "."); !rooms[room(word)] {
			continue
		}
		if found, _ := filepath.Glob("../../" + word); len(found) == 0 {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", word)
		}
	}
}
