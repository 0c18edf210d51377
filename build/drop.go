package build

import (
	"context"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/session"
)

// Drop removes an image that a build with --max-layers made, and the layers that nothing else uses. The stored sandboxes
// of all namespaces keep theirs.
func Drop(ctx context.Context, ref imageref.Ref) error {
	c, err := session.OpenImages()
	if err != nil {
		return err
	}
	defer c.Store.Close()
	whole := session.New(session.Options{})
	defer whole.Close()
	release, layers, err := whole.HoldStored(ctx, c.Store, nil)
	if err != nil {
		return err
	}
	defer release()
	if err := (images.Steps{Store: c.Store}).Discard(ctx, ref); err != nil {
		return err
	}
	_, _, err = c.Sweep(ctx, layers) // what other id maps unpacked stays until gc runs under them
	return err
}
