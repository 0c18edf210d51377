package images

import (
	"context"
	"errors"
	"fmt"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// Feature returns the image of a dev container feature (containers.dev) that a registry has. After the first time it is in the
// store under the feature's name. With PullAlways the registry is asked again.
func (c *Client) Feature(ctx context.Context, ref imageref.Ref, policy PullPolicy, progress func(events.Event)) (*Image, error) {
	img, err := c.Store.Lookup(ref)
	switch {
	case err == nil && policy != PullAlways && img.Config.Labels[oci.FeatureLabel] != "" && c.Store.Whole(img) == nil:
		return img, nil
	case policy == PullNever && err == nil:
		return nil, fmt.Errorf("feature %q: %w", ref, ErrNotFound)
	case policy == PullNever, err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
		return nil, fmt.Errorf("feature %q: %w", ref, err)
	}
	result, err := c.run(ctx, job{args: []string{"feature", "--store", c.Store.Dir(), ref.Full}, on: progress})
	if err == nil && result.Digest == "" {
		err = errNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("feature %q: %w", ref, err)
	}
	return c.Store.Lookup(imageref.Ref{Kind: imageref.Pinned, Given: string(result.Digest), Full: string(result.Digest)})
}
