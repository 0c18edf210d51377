package mcp

import (
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *Server) destroy() tool {
	return tool{
		name:        "sandbox_destroy",
		description: "Remove a sandbox: end its processes and delete its files. output_dir stays unless it is empty.",
		in:          arguments(boxField),
		hints:       hints{destructive: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			id, err := c.args.required("sandbox_id")
			if err != nil {
				return nil, err
			}
			if err := c.engine.Destroy(c.ctx, id); err != nil {
				return nil, err
			}
			return answer(fmt.Sprintf("destroyed: %s", id), nil), nil
		},
	}
}
