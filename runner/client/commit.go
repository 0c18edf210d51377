package client

import (
	"context"
	"os"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// Layer writes a layer that a sandbox has above its image to a file or pipe, as a tar. 0 is the lowest; at least one exists.
// If n is the number of layers, the file stays empty. The sandbox must have no processes; for a running sandbox use a
// [Client.Snapshot].
func (c *Client) Layer(ctx context.Context, idOrName string, n int, o runner.LayerOptions, to *os.File) (runner.Layered, error) {
	var l runner.Layered
	c = c.of(ctx, idOrName)
	err := c.peer.Call(ctx, api.OpLayer, api.LayerRequest{Sandbox: idOrName, Layer: n, Options: o}, ipc.Files{api.FileLayer: to}, &l)
	return l, c.lost(err)
}
