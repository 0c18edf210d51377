package cli

import (
	"context"

	"demesne/cli/stream"
	"demesne/images"
)

// imageTool adds to app the steps that the commands about images share.
type imageTool struct{ *app }

// with calls f with the image client and a context that ends on INT, TERM, HUP or QUIT.
func (t imageTool) with(f func(context.Context, *images.Client) (int, error)) (int, error) {
	c, err := t.images()
	if err != nil {
		return 0, err
	}
	sig := stream.SignalsWatched(t.quit)
	code, err := f(sig.Ctx, c)
	if gave := sig.GaveUp(); gave != 0 && (err != nil || code != 0) {
		return gave, nil
	}
	return code, err
}
