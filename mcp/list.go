package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
)

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
