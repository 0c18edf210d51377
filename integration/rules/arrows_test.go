package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// resolved has the files of one package, without tests and generated files, and what their identifiers mean.
type resolved struct {
	set   *token.FileSet
	files map[string]*ast.File
	uses  map[*ast.Ident]types.Object
}

// hollow imports each package as an empty one. Definitions of the package under test resolve without their imports.
type hollow struct{}

func (hollow) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// resolve reads the package in a directory.
func resolve(t *testing.T, dir string) resolved {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			sources[filepath.Base(path)] = string(src)
		}
	}
	return resolveFiles(t, sources)
}

func resolveFiles(t *testing.T, sources map[string]string) resolved {
	t.Helper()
	r := resolved{set: token.NewFileSet(), files: map[string]*ast.File{}, uses: map[*ast.Ident]types.Object{}}
	var all []*ast.File
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f, err := parser.ParseFile(r.set, name, sources[name], parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, f); !ast.IsGenerated(f) {
			r.files[name] = f
		}
	}
	conf := types.Config{Importer: hollow{}, Error: func(error) {}, FakeImportC: true} // names of hollow packages do not resolve
	conf.Check("", r.set, all, &types.Info{Uses: r.uses})
	return r
}

// arrows returns for each file the files whose functions, methods, types, variables and constants it uses.
func (r resolved) arrows() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for name := range r.files {
		out[name] = map[string]bool{}
	}
	for id, obj := range r.uses {
		fn, ok := obj.(*types.Func)
		method := ok && fn.Signature().Recv() != nil
		if obj.Pkg() == nil || !method && obj.Parent() != obj.Pkg().Scope() {
			continue
		}
		from, to := r.set.Position(id.Pos()).Filename, r.set.Position(obj.Pos()).Filename
		if from != to && out[from] != nil && out[to] != nil {
			out[from][to] = true
		}
	}
	return out
}

// runUp puts the files of a package in an order with few arrows that run up, and returns those. Files that use many of the
// others come first. Then each file moves to where the fewest arrows run up, as long as that helps.
func runUp(arrows map[string]map[string]bool) (up []string, all int) {
	files := slices.Sorted(maps.Keys(arrows))
	lead := func(file string) (n int) { // how many files it uses, less those that use it
		for _, other := range files {
			n += cost(arrows, file, other)
		}
		return n
	}
	order := slices.SortedStableFunc(slices.Values(files), func(a, b string) int { return lead(b) - lead(a) })
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Clone(order) {
			from := slices.Index(order, file)
			sum, best, at := 0, 0, from
			for to := from + 1; to < len(order); to++ { // down, past the files that it uses
				if sum += cost(arrows, file, order[to]); sum < best {
					best, at = sum, to
				}
			}
			sum = 0
			for to := from - 1; to >= 0; to-- {
				if sum += cost(arrows, order[to], file); sum < best {
					best, at = sum, to
				}
			}
			if at != from {
				order = slices.Insert(slices.Delete(order, from, from+1), at, file)
				moved = true
			}
		}
	}
	for i, file := range order {
		all += len(arrows[file])
		for _, above := range order[:i] {
			if arrows[file][above] {
				up = append(up, file+" → "+above)
			}
		}
	}
	return up, all
}

// cost returns how many more arrows run up when the file above moves below the other.
func cost(arrows map[string]map[string]bool, above, below string) (n int) {
	if arrows[above][below] {
		n++
	}
	if arrows[below][above] {
		n--
	}
	return n
}

// TestRuleArrows checks that the files of a package stand in an order: of the arrows from a file to one whose definitions
// it uses, few run back up.
func TestRuleArrows(t *testing.T) {
	for _, c := range []struct {
		files string // file: definition, and what it uses
		up    int
	}{
		{"a: A B; b: B C; c: C", 0},
		{"a: A B; b: B A", 1},
		{"a: A B C; b: B C A; c: C", 1},
		{"c: C; b: B C; a: A B; d: D A B C", 0},
		{"a: A B; b: B C; c: C D; d: D A", 1},
	} {
		sources := map[string]string{}
		for _, file := range strings.Split(c.files, "; ") {
			name, words, _ := strings.Cut(file, ": ")
			def, uses, _ := strings.Cut(words, " ")
			sources[name] = fmt.Sprintf("package p\nfunc %s() { %s }\n", def, regexp.MustCompile(`\w+`).ReplaceAllString(uses, "$0();"))
		}
		r := resolveFiles(t, sources)
		if up, _ := runUp(r.arrows()); len(up) != c.up {
			t.Errorf("%s: %q run up, want %d", c.files, up, c.up)
		}
	}
	found := map[string]int{}
	for _, dir := range measured(t) {
		up, all := runUp(resolve(t, dir).arrows())
		if 100*len(up) > maxUp*all {
			found[dir] = len(up)
			t.Logf("%s: %d of %d arrows run up: %s", dir, len(up), all, strings.Join(up, ", "))
		}
	}
	compare(t, found)
}

// measured returns the packages of programs. integration measures and drives them.
func measured(t *testing.T) (dirs []string) {
	t.Helper()
	for dir, p := range sources(t) {
		if p.name != "" && room(dir) != "integration" {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// TestRuleImports checks that no package imports many packages of demesne.
func TestRuleImports(t *testing.T) {
	found, all := map[string]int{}, sources(t)
	for _, dir := range measured(t) {
		n := 0
		for path := range all[dir].imports {
			if ours(path) != "" {
				n++
			}
		}
		if n > maxImports {
			found[dir] = n
		}
	}
	compare(t, found)
}

var constructor = regexp.MustCompile(`^([nN]ew|[oO]pen)([A-Z]|$)`)

// disguised returns the name of a type of the package with methods that is the first parameter of fn, or "". Constructors
// may take their options in this way. Functions with type parameters cannot be methods, and values of function types are
// literals.
func (r resolved) disguised(fn *ast.FuncDecl) string {
	if fn.Recv != nil || fn.Type.TypeParams != nil || len(fn.Type.Params.List) == 0 || constructor.MatchString(fn.Name.Name) {
		return ""
	}
	param := fn.Type.Params.List[0].Type
	if star, ok := param.(*ast.StarExpr); ok {
		param = star.X
	}
	id, ok := param.(*ast.Ident)
	if !ok || r.uses[id] == nil || r.uses[id].Pkg() == nil {
		return ""
	}
	named, ok := r.uses[id].Type().(*types.Named)
	if !ok || named.NumMethods() == 0 {
		return ""
	}
	if _, function := named.Underlying().(*types.Signature); function {
		return ""
	}
	return id.Name
}

// TestRuleMethods checks that a function whose first parameter is a type of its package with methods is a method.
func TestRuleMethods(t *testing.T) {
	found := map[string]int{}
	for _, dir := range measured(t) {
		r := resolve(t, dir)
		for name, f := range r.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if of := r.disguised(fn); of != "" {
					found[dir]++
					t.Logf("%s/%s: %s should be a method of %s", dir, name, fn.Name.Name, of)
				}
			}
		}
	}
	compare(t, found)
}
