package mcp

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/session"
)

// TestToolReference compares docs/reference/mcp.md with the tools that the server lists, optional ones included.
// With -update it writes the document.
func TestToolReference(t *testing.T) {
	s := New(&desk{}, Options{Version: "1", Mounts: Mounts{roots: []string{"DEMESNE_ALLOWED_PATHS"}}, Image: "host", Sets: append(ToolSets(), RunsSet), Runs: noRuns{}, Web: &noWeb{}, Browse: browses, Build: func(context.Context, session.Request, session.Callbacks) (_, _ string, _ session.Tail, _ error) {
		return
	}, Egress: []string{"none", "package-managers"},
		Images: []string{"host", "node", "python", "go", "anaconda", "debian", "ubuntu", "alpine"}})
	tools := s.tools()
	slices.SortFunc(tools, func(a, b tool) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString(`# MCP tools

The tools that ` + "`demesne mcp`" + ` offers; the [guide](../guide/mcp.md) says how to add them to a client. The tools for single
files are there with ` + "`--tools files`" + `, and those that fork sandboxes, copy between them and build images with ` + "`--tools sandboxes`" + `. Those that execute
code in sessions are there with ` + "`--tools code`" + `, those that read [the web](../guide/web.md) with ` + "`--tools web`" + `, those that drive [browsers](../guide/browser.md) with ` + "`--tools browser`" + `, and those for [the host itself](../guide/host-commands.md) with ` + "`--tools host`" + `. Only
` + "`demesne serve`" + ` has run_sandbox, delete_sandbox and restart_sandbox. The list that clients get has a shorter form of the results.

<!-- made by go test ./mcp -run TestToolReference -update -->
`)
	for _, tool := range tools {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", tool.name, strings.TrimSpace(tool.description+" "+tool.more))
		if fields := fieldsOf(tool.in); len(fields) > 0 {
			b.WriteString("\n| argument | type | |\n|---|---|---|\n")
			rows(&b, "", fields, true)
		}
		if tool.out != nil {
			b.WriteString("\n| result | type | |\n|---|---|---|\n")
			rows(&b, "", fieldsOf(tool.out), false)
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

// rows writes a table row for each field, and for the fields of objects within.
func rows(b *strings.Builder, prefix string, fields properties, arguments bool) {
	for _, p := range fields {
		kind := fmt.Sprint(cmp.Or(p.schema["type"], any("any value")))
		items, isList := p.schema["items"].(map[string]any)
		if isList {
			kind = fmt.Sprintf("array of %v", items["type"])
		}
		says, _ := p.schema["description"].(string)
		switch preset, has := p.schema["default"]; {
		case arguments && p.required:
			kind += ", required"
		case has:
			kind += fmt.Sprintf(", default `%v`", preset)
		}
		if p.more != "" {
			says = strings.TrimSpace(says + " " + p.more)
		}
		if words, ok := p.schema["enum"]; ok {
			says = strings.TrimSpace(says + fmt.Sprintf(" One of `%s`.", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(words)), "`, `"), "[]")))
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, p.name, kind, strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(says))
		if _, brief := p.schema["properties"].(known); brief {
			continue
		}
		rows(b, prefix+p.name+".", fieldsOf(p.schema), arguments)
		rows(b, prefix+p.name+"[].", fieldsOf(items), arguments)
	}
}
