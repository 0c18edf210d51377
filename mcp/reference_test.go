package mcp

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestToolReference compares docs/reference/mcp.md with the tools that the server lists, optional ones included.
// With -update it writes the document.
func TestToolReference(t *testing.T) {
	s := New(&desk{}, Options{Version: "1", Mounts: Mounts{roots: []string{"DEMESNE_ALLOWED_PATHS"}}, Image: "host", Sets: ToolSets(), Egress: []string{"none", "package-managers"},
		Images: []string{"host", "node", "python", "go", "anaconda", "debian", "ubuntu", "alpine"}})
	list, err := client(t, s, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(`# MCP tools

The tools that ` + "`demesne mcp`" + ` offers; the [guide](../guide/mcp.md) says how to add them to a client. The tools for single
files are there with ` + "`--tools files`" + ` only.

<!-- made by go test ./mcp -run TestToolReference -update -->
`)
	for _, tool := range list.Tools {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", tool.Name, tool.Description)
		in := tool.InputSchema.(map[string]any)
		if fields, _ := in["properties"].(map[string]any); len(fields) > 0 {
			required := append([]any{}, in["required"].([]any)...)
			b.WriteString("\n| argument | type | |\n|---|---|---|\n")
			rows(&b, "", fields, required)
		}
		if out, ok := tool.OutputSchema.(map[string]any); ok {
			fields, _ := out["properties"].(map[string]any)
			b.WriteString("\n| result | type | |\n|---|---|---|\n")
			rows(&b, "", fields, nil)
		}
	}
	const path = "../docs/reference/mcp.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || b.String() != string(want) {
		t.Errorf("%s is not what the server lists; run with -update if that is meant (%v)", path, err)
	}
}

// rows writes a table row for each field of a schema's object, and for the fields of objects within. required is
// nil for results.
func rows(b *strings.Builder, prefix string, fields map[string]any, required []any) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field := fields[name].(map[string]any)
		kind := fmt.Sprint(field["type"])
		if items, ok := field["items"].(map[string]any); ok {
			kind = fmt.Sprintf("array of %v", items["type"])
		}
		says, _ := field["description"].(string)
		switch preset, has := field["default"]; {
		case slices.Contains(required, any(name)):
			kind += ", required"
		case has:
			kind += fmt.Sprintf(", default `%v`", preset)
		}
		if words, ok := field["enum"].([]any); ok {
			says = strings.TrimSpace(says + fmt.Sprintf(" One of `%s`.", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(words)), "`, `"), "[]")))
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, name, kind, strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(says))
		within, nested := field["properties"].(map[string]any)
		if !nested {
			if items, ok := field["items"].(map[string]any); ok {
				within, nested = items["properties"].(map[string]any)
				name += "[]"
			}
		}
		if nested {
			var inner []any
			if required != nil {
				inner, _ = field["required"].([]any)
			}
			rows(b, prefix+name+".", within, inner)
		}
	}
}
