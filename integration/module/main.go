// Command module gives the modules of this tree another path, from which go get can fetch them. make module calls it.
//
// The path stands in go.mod, in client/go.mod, and in the imports. Documents and comments name the two packages that other
// programs import. Everything else reads the path from go.mod, or does without it: generated code keeps the path inside its
// descriptors, which nothing resolves.
package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: make module PATH=example.test/demesne")
		os.Exit(2)
	}
	if err := rename(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
}

// wellFormed matches the paths that go get can fetch: a host, and a name below it.
var wellFormed = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$`)

// rename gives the module in root, and the one in its directory client, the path to.
func rename(root, to string) error {
	if !wellFormed.MatchString(to) {
		return fmt.Errorf("path %q: not HOST/NAME, such as example.test/demesne", to)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	from, ok := strings.CutPrefix(line, "module ")
	if !ok {
		return fmt.Errorf("parse go.mod: no module in line %q", line)
	}
	word := regexp.QuoteMeta(from)
	module := regexp.MustCompile(`(?m)(^module |^\t|^require |^replace )` + word + `(/client)?( |$)`)
	public := regexp.MustCompile("(^|[ `(])" + word + `/(client|server/inprocess)\b`)
	named := func(s string) string { return public.ReplaceAllString(s, "${1}"+to+"/$2") }
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		switch filepath.Ext(path) {
		case ".mod":
			return edit(path, func(s string) string { return module.ReplaceAllString(s, "${1}"+to+"$2$3") })
		case ".go":
			return edit(path, func(s string) string { return named(imports(s, from, to)) })
		case ".md":
			return edit(path, named)
		}
		return nil
	})
}

// imports replaces the path from at the beginning of the imports of a Go file.
func imports(src, from, to string) string {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", src, parser.ImportsOnly)
	if err != nil {
		return src // test data: no compiler reads it either
	}
	for _, i := range slices.Backward(f.Imports) {
		at := set.Position(i.Path.Pos()).Offset + 1
		if rest, ok := strings.CutPrefix(src[at:], from+"/"); ok {
			src = src[:at] + to + "/" + rest
		}
	}
	return src
}

// edit replaces the content of a file, if change changes it.
func edit(path string, change func(string) string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	to := change(string(b))
	if to == string(b) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(to), info.Mode())
}
