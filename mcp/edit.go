package mcp

import (
	"encoding/base64"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
)

func (s *Server) edit() tool {
	return tool{
		name: "sandbox_edit",
		description: "Replace text in a file of a sandbox. old_string must occur exactly once, unless replace_all is set. " +
			"Without an exact match, whole lines are compared with white space ignored.",
		in: arguments(boxField, pathField.must(), field("old_string", "string", "").must(), field("new_string", "string", "").must(),
			field("replace_all", "boolean", "").with("default", false)),
		out: results(field("replaced", "integer", "number of replacements").must(), field("line", "integer", "line of the first replacement").must(),
			field("ignored", "string", "differences that were ignored to find old_string")),
		hints:  hints{destructive: true},
		handle: (*call).editFile,
	}
}

func (c *call) editFile() (*sdk.CallToolResult, error) {
	e := files.Edit{Path: c.args.text("path"), All: c.args.flag("replace_all")}
	var err error
	if e.Old, err = c.args.required("old_string"); err != nil {
		return nil, err
	}
	if e.New, err = c.args.required("new_string"); err != nil {
		return nil, err
	}
	a, err := c.ask(files.Request{Edit: &e})
	if err != nil {
		return nil, err
	}
	did, err := belongs(a.Edited)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("edited: %s (%d replaced, line %d)", e.Path, did.Replaced, did.Line)
	if did.Ignored != "" {
		text += "\nfound by ignoring " + did.Ignored
	}
	return answer(text, did), nil
}

func (s *Server) write() tool {
	return tool{
		name:        "sandbox_write",
		description: "Create a file in a sandbox, or replace its content. Missing parent directories are created.",
		in: arguments(boxField, pathField.must(), field("content", "string", "").must(),
			field("encoding", "string", "of content").with("enum", []string{"text", "base64"}).with("default", "text")),
		out:    results(field("bytes", "integer", "written").must(), field("created", "boolean", "the file did not exist").must()),
		hints:  hints{destructive: true, idempotent: true},
		handle: (*call).writeFile,
	}
}

func (c *call) writeFile() (*sdk.CallToolResult, error) {
	text, err := c.args.required("content")
	if err != nil {
		return nil, err
	}
	w := files.Write{Path: c.args.text("path"), Content: []byte(text)}
	if c.args.text("encoding") == "base64" {
		if w.Content, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("content is not base64: %w", err)
		}
	}
	a, err := c.ask(files.Request{Write: &w})
	if err != nil {
		return nil, err
	}
	did, err := belongs(a.Written)
	if err != nil {
		return nil, err
	}
	return answer(fmt.Sprintf("wrote: %s (%d bytes)", w.Path, did.Bytes), did), nil
}
