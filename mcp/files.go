package mcp

import (
	"fmt"
	"path/filepath"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *Server) upload() tool {
	return tool{
		name:        "sandbox_upload",
		description: "Copy a file or directory of the host into a sandbox. Links inside it are copied as links.",
		in: arguments(
			field("sandbox_id", "string", "").must(),
			field("src", "string", "Path on the host. Must be absolute and inside one of the configured mount roots: "+s.opts.Mounts.String()+".").must(),
			field("dst", "string", "Path in the sandbox, absolute, of the copy itself.").must(),
		),
		hints:  hints{destructive: true, idempotent: true},
		handle: (*call).copyIn,
	}
}

func (c *call) copyIn() (*sdk.CallToolResult, error) {
	id, src, dst := c.args.text("sandbox_id"), c.args.text("src"), c.args.text("dst")
	if id == "" || src == "" || dst == "" {
		return nil, fmt.Errorf("sandbox_id, src, and dst are required")
	}
	real, _, err := c.opts.Mounts.resolve(src)
	if err != nil {
		return nil, err
	}
	if err := c.engine.Upload(c.ctx, id, real, dst); err != nil {
		return nil, err
	}
	return answer(fmt.Sprintf("uploaded: %s -> %s", filepath.Base(src), dst), nil), nil
}

func (s *Server) download() tool {
	return tool{
		name: "sandbox_download",
		description: "Copy a file or directory out of a sandbox, to a place of its own beside the sandbox's output_dir. " +
			"What is in /out needs no download: it is in output_dir already.",
		in: arguments(
			field("sandbox_id", "string", "").must(),
			field("src", "string", "Path in the sandbox, absolute.").must(),
		),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).copyOut,
	}
}

func (c *call) copyOut() (*sdk.CallToolResult, error) {
	id, src := c.args.text("sandbox_id"), c.args.text("src")
	if id == "" || src == "" {
		return nil, fmt.Errorf("sandbox_id and src are required")
	}
	path, err := c.engine.Download(c.ctx, id, src)
	if err != nil {
		return nil, err
	}
	return answer(fmt.Sprintf("downloaded: %s -> %s", src, path), nil), nil
}
