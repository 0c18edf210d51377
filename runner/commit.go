package runner

import (
	"context"
	"os"

	"demesne/runner/wire"
)

// LayerRequest is the body of a layer call; its descriptor is where the layer goes.
type LayerRequest struct {
	Sandbox string `json:"sandbox"`
	Layer   int    `json:"layer"`
}

// Layered is the reply to it.
type Layered struct {
	Layers  int `json:"layers"`  // there are
	Entries int `json:"entries"` // in this one; without any it is not worth keeping
}

// FileLayer is that descriptor.
const FileLayer = "layer"

// Layer writes to a file, as a tar, the nth of the layers that a sandbox has over its image's: 0 is the lowest. There is
// at least one. The sandbox has no processes: take a [Client.Snapshot] of one that has.
func (c *Client) Layer(ctx context.Context, idOrName string, n int, to *os.File) (Layered, error) {
	var l Layered
	err := c.peer.Call(ctx, OpLayer, LayerRequest{Sandbox: idOrName, Layer: n}, wire.Files{FileLayer: to}, &l)
	return l, c.lost(err)
}
