package mcp

import (
	"encoding/base64"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
)

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
