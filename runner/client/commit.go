package client

import (
	"context"
	"os"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// Layer writes to a file, as a tar, the nth of the layers that a sandbox has over its image's: 0 is the lowest. There is
// at least one. The sandbox has no processes: take a [Client.Snapshot] of one that has.
func (c *Client) Layer(ctx context.Context, idOrName string, n int, to *os.File) (runner.Layered, error) {
	var l runner.Layered
	c = c.of(ctx, idOrName)
	err := c.peer.Call(ctx, api.OpLayer, api.LayerRequest{Sandbox: idOrName, Layer: n}, ipc.Files{api.FileLayer: to}, &l)
	return l, c.lost(err)
}
