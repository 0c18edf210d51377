package launch

import (
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"demesne/cli/stream"
	"demesne/proxy"
	"demesne/runner"
	"demesne/runner/ipc"
)

const schemas = "../../docs/reference/schema/"

var update = flag.Bool("update", false, "write the fields of a result into docs/reference")

// TestResultDocuments compares the fields of a result in its schema and in docs/reference/json.md with the Go types and
// their tags. With -update it writes them.
func TestResultDocuments(t *testing.T) {
	ended, table := fieldsOf(reflect.TypeFor[outcome]())
	listed, _ := fieldsOf(reflect.TypeFor[Listed]())
	for _, c := range []struct{ path, after, until, want string }{
		{schemas + "result.json", `"required": ["sandbox", "exit_code", "reason", "output_dir", "started", "seconds"],` + "\n      \"properties\": {\n", "\n      }\n", ended},
		{schemas + "result.json", `"required": ["index", "command", "failed", "exit_code", "reason", "seconds"],` + "\n      \"properties\": {\n", "\n      }\n", listed},
		{"../../docs/reference/json.md", "| field of a result | |\n|---|---|\n", "\n\n", table},
	} {
		text, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, begins := strings.Cut(string(text), c.after)
		got, behind, ends := strings.Cut(rest, c.until)
		switch {
		case !begins || !ends:
			t.Errorf("%s: no %q", c.path, c.after)
		case got == c.want:
		case *update:
			if err := os.WriteFile(c.path, []byte(before+c.after+c.want+c.until+behind), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is out of date: go test ./cli/launch -run TestResultDocuments -update\n%s", c.path, c.want)
		}
	}
}

// fieldsOf returns the properties of a struct in a schema, and the rows of a table, one line each.
func fieldsOf(typ reflect.Type) (properties, table string) {
	var lines, rows []string
	for _, field := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		doc := field.Tag.Get("doc")
		lines = append(lines, fmt.Sprintf("        %q: {%s, \"description\": %q}", name, typeOf(field.Type), doc))
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", name, doc))
	}
	return strings.Join(lines, ",\n"), strings.Join(rows, "\n")
}

// typeOf returns the keywords of a schema for a type. Some types have a schema of their own.
func typeOf(typ reflect.Type) string {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	ref := map[reflect.Type]string{
		reflect.TypeFor[runner.Reason](): "#/$defs/reason", reflect.TypeFor[runner.Receipt](): "receipt.json",
		reflect.TypeFor[runner.Blocked](): "#/$defs/blocked", reflect.TypeFor[runner.Stage](): "#/$defs/stage", reflect.TypeFor[Listed](): "#/$defs/listed",
	}[typ]
	switch kind := jsonType(typ); {
	case ref != "":
		return fmt.Sprintf(`"$ref": %q`, ref)
	case kind == "array":
		return `"type": "array", "items": {` + typeOf(typ.Elem()) + "}"
	case typ == reflect.TypeFor[time.Time]():
		return `"type": "string", "format": "date-time"`
	default:
		return fmt.Sprintf(`"type": %q`, kind)
	}
}

// TestSchemas compares the published schemas with the Go types that are encoded. Both must have the same fields,
// the same JSON types, and the same required fields.
func TestSchemas(t *testing.T) {
	for _, c := range []struct {
		file, at string
		value    any
	}{
		{"receipt.json", "", runner.Receipt{}},
		{"result.json", "ended", outcome{}},
		{"result.json", "failed", failed{}},
		{"result.json", "error", ipc.Error{}},
		{"decision.json", "", proxy.Record{}},
	} {
		f := openSchema(t, c.file)
		s := f.root
		if c.at != "" {
			s = f.root.Defs[c.at]
		}
		f.compare(t, c.file+" "+c.at, s, reflect.TypeOf(c.value))
	}
}

// TestSchemaWords compares the enumerations of the schemas with the constants in the sources.
func TestSchemaWords(t *testing.T) {
	receipt, result, decision := openSchema(t, "receipt.json").root, openSchema(t, "result.json").root, openSchema(t, "decision.json").root
	for _, c := range []struct {
		dir, kind string
		schema    *jsonschema.Schema
	}{
		{"../../runner", "Level", receipt.Defs["level"]},
		{"../../runner", "Status", receipt.Defs["status"]},
		{"../../runner", "Reason", result.Defs["reason"]},
	} {
		if got, want := words(c.schema.Enum), constants(t, c.dir, c.kind); !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("the schema has the %ss %q, and the source %q", c.kind, got, want)
		}
	}
	if got, want := words(decision.Properties["verdict"].Enum), []string{proxy.Allowed, proxy.Pending, proxy.Changed, proxy.Denied}; !slices.Equal(got, want) {
		t.Errorf("the schema has the verdicts %q, not %q", got, want)
	}
	if v := decision.Properties["version"].Const; v == nil || *v != float64(proxy.LogVersion) {
		t.Errorf("the schema of a decision has the version %v, not %d", v, proxy.LogVersion)
	}
}

// schemaFile is a parsed schema and its name.
type schemaFile struct {
	name string
	root *jsonschema.Schema
}

func openSchema(t *testing.T, name string) *schemaFile {
	t.Helper()
	raw, err := os.ReadFile(schemas + name)
	if err != nil {
		t.Fatal(err)
	}
	f := &schemaFile{name: name, root: &jsonschema.Schema{}}
	if err := json.Unmarshal(raw, f.root); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if f.root.Schema != "https://json-schema.org/draft/2020-12/schema" || f.root.Description == "" {
		t.Errorf("%s: no $schema or no description", name)
	}
	return f
}

// follow returns the target of s's reference, or s itself, and the file that contains it.
func (f *schemaFile) follow(t *testing.T, s *jsonschema.Schema) (*schemaFile, *jsonschema.Schema) {
	t.Helper()
	file, name, local := strings.Cut(s.Ref, "#/$defs/")
	switch {
	case s.Ref == "":
		return f, s
	case local && file == "" && f.root.Defs[name] != nil:
		return f, f.root.Defs[name]
	case !local && file != "":
		other := openSchema(t, file)
		return other, other.root
	}
	t.Fatalf("%s: reference %q leads nowhere", f.name, s.Ref)
	return nil, nil
}

// compare reports the differences between a schema and a type. path names the place for error messages.
func (f *schemaFile) compare(t *testing.T, path string, s *jsonschema.Schema, typ reflect.Type) {
	t.Helper()
	if s == nil {
		t.Errorf("%s: no schema", path)
		return
	}
	f, s = f.follow(t, s)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if want := jsonType(typ); s.Type != want {
		t.Errorf("%s: type %q, and the Go type %v is %q", path, s.Type, typ, want)
		return
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		if s.Format != "date-time" {
			t.Errorf("%s: format %q, not date-time", path, s.Format)
		}
	case s.Type == "array":
		f.compare(t, path+"[]", s.Items, typ.Elem())
	case s.Type == "object":
		f.object(t, path, s, typ)
	}
}

func (f *schemaFile) object(t *testing.T, path string, s *jsonschema.Schema, typ reflect.Type) {
	t.Helper()
	fields := map[string]reflect.Type{}
	var required []string
	collect(typ, false, fields, &required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if fields[name] == nil {
			t.Errorf("%s.%s: no such field in %v", path, name, typ)
		}
		if s.Properties[name].Description == "" {
			t.Errorf("%s.%s: no description", path, name)
		}
	}
	for name, typ := range fields {
		f.compare(t, path+"."+name, s.Properties[name], typ)
	}
	slices.Sort(required)
	if got := slices.Sorted(slices.Values(s.Required)); !slices.Equal(got, required) {
		t.Errorf("%s: required %q, and always encoded are %q", path, got, required)
	}
}

// collect adds the JSON fields of a struct, and those that are always encoded to required. Fields of an embedded
// *written are optional, because the pointer can be nil.
func collect(typ reflect.Type, optional bool, fields map[string]reflect.Type, required *[]string) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		tag, has := field.Tag.Lookup("json")
		if field.Anonymous && !has {
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			collect(inner, optional || inner == reflect.TypeFor[stream.Written](), fields, required)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		fields[name] = field.Type
		if !optional && !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}

// jsonType returns the JSON type that encodes a Go type.
func jsonType(typ reflect.Type) string {
	if typ == reflect.TypeFor[time.Time]() || reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "string"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	if typ.ConvertibleTo(reflect.TypeFor[int64]()) {
		return "integer"
	}
	return typ.String()
}

func words(enum []any) (all []string) {
	for _, v := range enum {
		word, _ := v.(string)
		all = append(all, word)
	}
	slices.Sort(all)
	return all
}

// constants returns the values of the string constants of a type that a package declares.
func constants(t *testing.T, dir, kind string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == kind {
				for _, value := range v.Values {
					if lit, ok := value.(*ast.BasicLit); ok {
						word, _ := strconv.Unquote(lit.Value)
						all = append(all, word)
					}
				}
			}
			return true
		})
	}
	slices.Sort(all)
	return all
}
