package mcp

import (
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
)

func (s *Server) grep() tool {
	return tool{
		name:        "sandbox_grep",
		description: "Find lines in the files of a sandbox by a regular expression (Go's, RE2), at most 100 matches.",
		in: arguments(boxField, field("path", "string", "Directory or file in the sandbox.").with("default", "/out"),
			field("pattern", "string", "").must(), field("glob", "string", "Only files with such names."),
			field("case_insensitive", "boolean", "").with("default", false),
			field("context_lines", "integer", "Lines to show before and after each match.").with("default", 0),
			field("output_mode", "string", "").with("enum", files.Modes()).with("default", files.Lines)),
		out: results(
			property{name: "lines", schema: map[string]any{"type": "array", "items": results(field("path", "string", "").must(),
				field("line", "integer", "").must(), field("text", "string", "").must(), field("context", "boolean", "a context line, not a match"))}},
			property{name: "files", schema: map[string]any{"type": "array", "items": results(field("path", "string", "").must(), field("count", "integer", ""))}},
			field("matches", "integer", "number of matches until the search stopped").must(), field("binary_files", "integer", "files that were not searched"), cutField),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).grepFiles,
	}
}

func (c *call) grepFiles() (*sdk.CallToolResult, error) {
	a, err := c.ask(files.Request{Grep: &files.Grep{
		Path: c.root(), Pattern: c.args.text("pattern"), Glob: c.args.text("glob"), IgnoreCase: c.args.flag("case_insensitive"),
		Context: int(min(c.args.whole("context_lines"), 1<<10)), Mode: files.Mode(c.args.text("output_mode")),
	}})
	if err != nil {
		return nil, err
	}
	m, err := belongs(a.Matches)
	if err != nil {
		return nil, err
	}
	return answer(matchesText(m), m), nil
}

// matchesText formats matches like grep -n.
func matchesText(m *files.Matches) string {
	var text strings.Builder
	for _, l := range m.Lines {
		mark := ':'
		if l.Context {
			mark = '-'
		}
		fmt.Fprintf(&text, "%s%c%d%c%s\n", l.Path, mark, l.Line, mark, l.Text)
	}
	for _, f := range m.Files {
		text.WriteString(f.Path)
		if f.Count > 0 {
			fmt.Fprintf(&text, ":%d", f.Count)
		}
		text.WriteByte('\n')
	}
	if m.Total == 0 {
		text.WriteString("no matches\n")
	}
	return text.String() + tooMany(m.Cut)
}
