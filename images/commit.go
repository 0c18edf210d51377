package images

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"demesne/images/imageref"
	"demesne/images/oci"
)

// A Change lists what a committed image overrides in its base. A nil or empty field keeps the base's value.
type Change struct {
	Env        []string  `json:"env,omitempty"` // NAME=VALUE; replaces the base's variable of that name
	Entrypoint *[]string `json:"entrypoint,omitempty"`
	Cmd        *[]string `json:"cmd,omitempty"`
	WorkingDir string    `json:"working_dir,omitempty"`
	User       string    `json:"user,omitempty"`
}

// Commit makes an image from another one of the store. It has the layers of the base, and on top the layers in the
// files, each a tar archive, lowest first. Its configuration is the base's, with the change applied.
func (c *Client) Commit(ctx context.Context, base oci.Digest, layers []*os.File, change Change, name imageref.Ref) (*Image, error) {
	if name.Kind != imageref.Bare && (name.Kind != imageref.Registry || name.Digest() != "") {
		return nil, fmt.Errorf("commit image %q: not a valid name for an image", name)
	}
	held, err := c.Store.Hold(ctx, base)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	args := []string{"commit", "--store", c.Store.Dir(), "--layers", strconv.Itoa(len(layers)), "--change", string(text), string(base), name.Full}
	result, err := c.run(ctx, job{args: args, ins: layers})
	if err == nil && result.Digest == "" {
		err = errNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("commit image %q: %w", name, err)
	}
	return c.Store.Lookup(imageref.Ref{Kind: imageref.Pinned, Given: string(result.Digest), Full: string(result.Digest)})
}
