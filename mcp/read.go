package mcp

import (
	"encoding/base64"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
)

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
