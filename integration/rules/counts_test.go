package rules

import (
	"go/ast"
	"testing"
)

// The limits that keep the tree readable.
const (
	mostPackages = 97 // client, client/local and server/inprocess, server/rest, runs, events, audit, page, hostcmd, metrics, config, mcp/toolbackend, apibackend: the HTTP API; runner/tree, server, server/e2b, server/e2b/envd, server/servecmd and demesne-server; session/vault and demesne-vault; with the rooms of builds (build/containerfile, push, compression, recipes, debian; build/buildcmd, devcontainer; demesne-build) and of kernels (kernels, driver, languages; kernels/code, kernelcmd; demesne-kernel)
	mostNames    = 30 // exported names of a package
	mostFields   = 25 // of a struct
	mostMethods  = 40 // of a type
)

// wide lists the packages that may export more than mostNames names, with the reason.
var wide = map[string]string{
	"client":           "the requests and answers of the HTTP API: each has a type",
	"internal/cmdline": "the setters of flags: each kind of value has one",
	"images/events":    "the protocol with demesne-images: each event, state and code has a name",
	"runner":           "the vocabulary of sandboxes: every other package uses its types",
	"runner/api":       "the protocol between caller and runner: an operation and its bodies each have a name",
	"runner/ipc":       "the protocol below it: each error code has a name",
	"server/hostcmd":   "each kind and state of a request has a name",
}

// size counts what one package declares outside test files.
type size struct {
	exported map[string]bool
	fields   map[string]int
	methods  map[string]map[string]bool // a set, as two files for two platforms may declare the same method
}

// add counts the declarations of a file.
func (s *size) add(f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			s.addFunc(d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s.addSpec(spec)
			}
		}
	}
}

func (s *size) addFunc(d *ast.FuncDecl) {
	if d.Recv == nil {
		s.export(d.Name)
		return
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	if name, ok := t.(*ast.Ident); ok {
		if s.methods[name.Name] == nil {
			s.methods[name.Name] = map[string]bool{}
		}
		s.methods[name.Name][d.Name.Name] = true
	}
}

func (s *size) addSpec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		s.export(spec.Names...)
	case *ast.TypeSpec:
		s.export(spec.Name)
		if t, ok := spec.Type.(*ast.StructType); ok {
			s.fields[spec.Name.Name] = max(s.fields[spec.Name.Name], fieldsOf(t))
		}
	}
}

func (s *size) export(names ...*ast.Ident) {
	for _, n := range names {
		if n.IsExported() {
			s.exported[n.Name] = true
		}
	}
}

// fieldsOf counts the fields of a struct. An embedded one counts as one field.
func fieldsOf(t *ast.StructType) (n int) {
	for _, f := range t.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// TestRuleCounts checks how many packages the module has, how many names a package exports, and how many fields and
// methods a type has. A package that only tests use may export what they need.
func TestRuleCounts(t *testing.T) {
	all := sources(t)
	packages := 0
	for dir, p := range all {
		if dir != "images/gpgme" { // a module of its own
			packages++
		}
		for name, n := range p.size.fields {
			if n > mostFields {
				t.Errorf("%s: %s has %d fields, more than %d", dir, name, n, mostFields)
			}
		}
		for name, set := range p.size.methods {
			if len(set) > mostMethods {
				t.Errorf("%s: %s has %d methods, more than %d", dir, name, len(set), mostMethods)
			}
		}
		n := len(p.size.exported)
		switch {
		case !product(all, dir):
		case n > mostNames && wide[dir] == "":
			t.Errorf("%s exports %d names, more than %d", dir, n, mostNames)
		case n <= mostNames && wide[dir] != "":
			t.Errorf("%s exports only %d names: remove it from the list of exceptions", dir, n)
		}
	}
	if packages > mostPackages {
		t.Errorf("the module has %d packages, more than %d", packages, mostPackages)
	}
	for dir := range wide {
		if all[dir] == nil {
			t.Errorf("%s does not exist: remove it from the list of exceptions", dir)
		}
	}
}

// product reports whether the programs link dir.
func product(all map[string]*aPackage, dir string) bool {
	for program, p := range all {
		if p.name == "main" && room(program) == "cmd" {
			if _, linked := closure(all, program)["demesne/"+dir]; linked {
				return true
			}
		}
	}
	return false
}

// TestRuleLeaves checks that each package of internal has several users: the helper of one package belongs there.
func TestRuleLeaves(t *testing.T) {
	all := sources(t)
	for leaf := range all {
		if room(leaf) != "internal" {
			continue
		}
		users := 0
		for _, p := range all {
			if p.imports["demesne/"+leaf] {
				users++
			}
		}
		if users < 2 {
			t.Errorf("%s has %d users, and a leaf needs two", leaf, users)
		}
	}
}
