package mcp

import (
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
