package client

import (
	"context"

	"demesne/runner"
	"demesne/runner/api"
)

// Diff compares a sandbox's files with its image's, whether the sandbox runs or not. It excludes files in /out
// and in a Workspace on the host.
func (c *Client) Diff(ctx context.Context, idOrName string) (*runner.Diff, error) {
	var d runner.Diff
	c = c.of(ctx, idOrName)
	if err := c.peer.Call(ctx, api.OpDiff, api.Target{Sandbox: idOrName}, nil, &d); err != nil {
		return nil, c.lost(err)
	}
	return &d, nil
}
