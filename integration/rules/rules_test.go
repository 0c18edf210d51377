package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRuleShape checks that packages and exported names are documented, that files and functions are short, and
// that package initialization runs only what it must.
func TestRuleShape(t *testing.T) {
	var files, bodies []int
	for dir, p := range sources(t) {
		if p.name != "" && p.doc == "" {
			t.Errorf("%s: no package comment", dir)
		}
		for _, what := range p.loose {
			if dir != "cmd/demesne-runner" || what != initFunction { // it must lock the main thread
				t.Errorf("%s: %s", dir, what)
			}
		}
		for file, n := range p.lines {
			if n > maxFile {
				t.Errorf("%s has %d lines, more than %d", file, n, maxFile)
			}
			if !strings.HasSuffix(file, "_test.go") {
				files = append(files, n)
			}
		}
		bodies = append(bodies, p.bodies...)
	}
	for _, c := range []struct {
		what  string
		lines []int
		usual int
	}{
		{"file", files, medianFile},
		{"function", bodies, medianFunction},
	} {
		slices.Sort(c.lines)
		if n := c.lines[len(c.lines)/2]; n > c.usual {
			t.Errorf("the median %s has %d lines, more than %d", c.what, n, c.usual)
		}
	}
}

const initFunction = "init function"

// loose lists the violations of one source file.
func loose(set *token.FileSet, f *ast.File) (all []string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if n := lines(set, d); n > maxFunction {
				all = append(all, fmt.Sprintf("%s has %d lines, more than %d", d.Name, n, maxFunction))
			}
			if d.Recv == nil && d.Name.Name == "init" {
				all = append(all, initFunction)
			}
			if d.Recv == nil && d.Name.IsExported() && d.Doc == nil {
				all = append(all, d.Name.Name+" is not documented")
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && t.Name.IsExported() && t.Doc == nil && d.Doc == nil {
					all = append(all, t.Name.Name+" is not documented")
				}
			}
		}
	}
	return all
}

func lines(set *token.FileSet, d ast.Node) int {
	return set.Position(d.End()).Line - set.Position(d.Pos()).Line
}

// programs calls f with each non-test source file of the programs.
func programs(t *testing.T, f func(path, src string)) {
	t.Helper()
	for dir := range sources(t) {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if room(dir) != "integration" && !strings.HasSuffix(path, "_test.go") {
				f(path, string(src))
			}
		}
	}
}

// TestRuleErrors checks that error messages begin in lower case and do not say "failed" or "unable": an error
// already means that.
func TestRuleErrors(t *testing.T) {
	bad := regexp.MustCompile(`(?:errors\.New|[Ee]rrorf)\((?:ipc\.\w+, )?["` + "`" + `](?:[A-Z][a-z]|[Ff]ailed|[Uu]nable|[Cc]ould not|[Cc]annot)`)
	programs(t, func(path, src string) {
		for _, found := range bad.FindAllString(src, -1) {
			t.Errorf("%s: %s", path, found)
		}
	})
}

// TestRuleLazy checks that no package compiles a regular expression before main: each start of a program would pay for it.
func TestRuleLazy(t *testing.T) {
	early := regexp.MustCompile(`(?m)^(?:var |\t)\w+\s*= regexp\.MustCompile`)
	programs(t, func(path, src string) {
		for _, found := range early.FindAllString(src, -1) {
			t.Errorf("%s: %s: lazy.Regexp compiles at the first use", path, found)
		}
	})
}

// TestRuleDocumented checks that docs/reference/environment.md names every environment variable that the programs
// read, and that docs/explanation/dependencies.md gives the reason for every direct dependency in go.mod. It also
// checks where that document says that a module is used.
func TestRuleDocumented(t *testing.T) {
	dependencies := text(t, "docs/explanation/dependencies.md")
	version := regexp.MustCompile(`/v\d+$`)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(text(t, "go.mod"), -1) { // lines of indirect modules end in a comment and do not match
		if name := filepath.Base(version.ReplaceAllString(m[1], "")); !strings.Contains(dependencies, name) {
			t.Errorf("dependencies.md does not say what %s is for", m[1])
		}
	}
	onlyIn(t, dependencies)
	environment, variable := text(t, "docs/reference/environment.md"), regexp.MustCompile(`"(DEMESNE_[A-Z_]+)"`)
	programs(t, func(path, src string) {
		for _, m := range variable.FindAllStringSubmatch(src, -1) {
			if !strings.Contains(environment, "| `"+m[1]+"` |") && !strings.HasPrefix(m[1], "DEMESNE_TEST_") {
				t.Errorf("environment.md does not say what %s does, which %s reads", m[1], path)
			}
		}
	})
}

// onlyIn checks the statements of dependencies.md of where a module is used.
func onlyIn(t *testing.T, dependencies string) {
	t.Helper()
	all := sources(t)
	module, home := regexp.MustCompile(`[a-z]+\.[a-z.]+/[\w./-]+`), regexp.MustCompile("`([^`]+)`")
	for _, row := range strings.Split(dependencies, "\n") {
		what, where, says := strings.Cut(row, "Only in ")
		if !says {
			continue
		}
		var homes []string
		for _, m := range home.FindAllStringSubmatch(where, -1) {
			homes = append(homes, m[1])
		}
		for _, name := range module.FindAllString(what, -1) {
			for dir, p := range all {
				for path := range p.imports {
					if strings.HasPrefix(path, name) && room(dir) != "integration" && !within(dir, homes) {
						t.Errorf("dependencies.md says that %s is only in %q, and %s imports it", name, homes, dir)
					}
				}
			}
		}
	}
}

// text returns a file at the root of the tree.
func text(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestRuleNoIgnoredNeeded checks that a clean clone compiles: no source embeds a file that git ignores.
func TestRuleNoIgnoredNeeded(t *testing.T) {
	embed := regexp.MustCompile(`(?m)^//go:embed (.+)$`)
	programs(t, func(path, src string) {
		for _, m := range embed.FindAllStringSubmatch(src, -1) {
			for _, pattern := range strings.Fields(m[1]) {
				if got, _ := filepath.Glob(filepath.Join(filepath.Dir(path), pattern)); len(got) == 0 || strings.HasPrefix(pattern, "bin") {
					t.Errorf("%s embeds %s, which a clean clone lacks", path, pattern)
				}
			}
		}
	})
}
