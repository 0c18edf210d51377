package mcp

import (
	"encoding/base64"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
)

// The tool set "files" works on single files of a sandbox without shell quoting. The operations
// run inside the sandbox; see package files.

var (
	boxField  = field("sandbox_id", "string", "From sandbox_create, or a name.").must()
	pathField = field("path", "string", "Path in the sandbox, absolute or below /out.")
	cutField  = field("truncated", "boolean", "the result is incomplete")
)

// ask performs a file operation in the sandbox that sandbox_id names.
func (c *call) ask(r files.Request) (*files.Answer, error) {
	id, err := c.args.required("sandbox_id")
	if err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	_, stop := c.watch()
	defer stop()
	a, err := c.engine.Files(c.ctx, id, r)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// root returns the directory in which a search starts.
func (c *call) root() string {
	if path := c.args.text("path"); path != "" {
		return path
	}
	return "/out"
}

// belongs returns an error if the answer lacks the requested part. The sandbox is untrusted and
// may omit it.
func belongs[T any](part *T) (*T, error) {
	if part == nil {
		return nil, files.ErrAnswer
	}
	return part, nil
}

// whole returns a positive integer argument, which may be written as a string, or 0.
func (a args) whole(name string) int64 {
	n := a.number(name)
	if !(n > 0 && n <= 1<<53) {
		return 0
	}
	return int64(n)
}

var entryFields = []property{
	{name: "entries", required: true, schema: map[string]any{"type": "array", "items": results(
		field("path", "string", "").must(), field("type", "string", "").with("enum", []string{"file", "directory", "link", "other"}).must(),
		field("size", "integer", "bytes").must(), field("mode", "string", "permissions as in ls -l").must(),
		field("modified_unix", "integer", "seconds").must(), field("target", "string", "of a link"))}},
	cutField,
}

// entriesResult converts file entries to a tool result.
func entriesResult(e *files.Entries) *sdk.CallToolResult {
	var text strings.Builder
	for _, f := range e.Entries {
		fmt.Fprintf(&text, "%s %10d %s", f.Mode, f.Size, f.Path)
		if f.Target != "" {
			fmt.Fprintf(&text, " -> %s", f.Target)
		}
		text.WriteByte('\n')
	}
	if e.Entries == nil {
		e.Entries = []files.Entry{} // encode an empty list as [], not null
	}
	return answer(text.String()+tooMany(e.Cut), e)
}

func tooMany(cut bool) string {
	if cut {
		return "[truncated]\n"
	}
	return ""
}

func (s *Server) read() tool {
	return tool{
		name:        "sandbox_read",
		description: "Read a text file of a sandbox, with line numbers, or with encoding=base64 the bytes of any file.",
		in: arguments(boxField, pathField.must(),
			field("offset", "integer", "The first line, or byte, from 1.").with("default", 1),
			field("limit", "integer", "Number of lines or bytes. Default: 2000 lines, or as many bytes as fit into a reply."),
			field("encoding", "string", "").with("enum", []string{"text", "base64"}).with("default", "text")),
		out: results(field("text", "string", "each line with its number and a tab in front").must(), field("base64", "string", ""),
			field("binary", "boolean", "the file is not text; read it with encoding=base64"), field("size", "integer", "of the file, in bytes").must(),
			field("next_offset", "integer", "offset of the next call"), cutField),
		hints: hints{readOnly: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			a, err := c.ask(files.Request{Read: &files.Read{
				Path: c.args.text("path"), Offset: c.args.whole("offset"), Limit: c.args.whole("limit"), Bytes: c.args.text("encoding") == "base64",
			}})
			if err != nil {
				return nil, err
			}
			content, err := belongs(a.Content)
			if err != nil {
				return nil, err
			}
			return answer(contentText(content), content), nil
		},
	}
}

func contentText(c *files.Content) string {
	text := c.Text
	switch {
	case c.Bytes != nil:
		text = base64.StdEncoding.EncodeToString(c.Bytes) + "\n"
	case c.Binary:
		return fmt.Sprintf("[binary, %d bytes; read it with encoding=base64]\n", c.Size)
	case c.Size == 0 && text == "":
		return "[empty file]\n"
	}
	if c.Next > 0 {
		text += fmt.Sprintf("[truncated; continue with offset=%d]\n", c.Next)
	}
	return text
}

func (s *Server) list() tool {
	return tool{
		name:        "sandbox_ls",
		description: "List a directory of a sandbox.",
		in: arguments(boxField, pathField.with("default", "/out"),
			field("depth", "integer", "Number of levels to list.").with("default", 1)),
		out:   results(entryFields...),
		hints: hints{readOnly: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			return c.entries(files.Request{List: &files.List{Path: c.root(), Depth: int(min(c.args.whole("depth"), 1<<10))}})
		},
	}
}

func (s *Server) glob() tool {
	return tool{
		name:        "sandbox_glob",
		description: "Find files of a sandbox by name, newest first, at most 100.",
		in: arguments(boxField, pathField.with("default", "/out"),
			field("pattern", "string", "* ? [a-z] {a,b} within a name, ** across directories. A pattern without a slash matches names at any depth.").must()),
		out:   results(entryFields...),
		hints: hints{readOnly: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			return c.entries(files.Request{Glob: &files.Glob{Path: c.root(), Pattern: c.args.text("pattern")}})
		},
	}
}

func (c *call) entries(r files.Request) (*sdk.CallToolResult, error) {
	a, err := c.ask(r)
	if err != nil {
		return nil, err
	}
	e, err := belongs(a.Entries)
	if err != nil {
		return nil, err
	}
	return entriesResult(e), nil
}

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
