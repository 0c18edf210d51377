package images

import (
	"context"
	"fmt"

	"demesne/images/events"
	"demesne/images/imageref"
)

// make builds the image of a recipe, unless the store has it, and unpacks it. Only one process at a time builds it.
func (c *Client) make(ctx context.Context, ref imageref.Ref, progress func(events.Event)) (*Image, error) {
	r, values, ok := ref.Recipe()
	if !ok {
		return nil, fmt.Errorf("image %q: %w: its recipe makes another image now", ref, ErrNotFound)
	}
	args := []string{"build", "--progress=events", "--recipe=" + r.Name}
	for _, v := range values {
		args = append(args, "--build-arg="+v)
	}
	if c.Platform != "" {
		args = append(args, "--platform="+c.Platform)
	}
	if _, err := c.run(ctx, job{args: args, on: progress}); err != nil {
		return nil, fmt.Errorf("build image %q: %w", ref, err)
	}
	img, err := c.Store.Lookup(ref)
	if err == nil {
		err = c.Unpack(ctx, img, progress)
	}
	return img, err
}
