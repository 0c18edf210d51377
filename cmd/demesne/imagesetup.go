package main

import (
	"context"

	"demesne/images"
)

// withImages calls f with the image client and a context that ends on INT, TERM, HUP or QUIT.
func (a *app) withImages(f func(context.Context, *images.Client) (int, error)) (int, error) {
	c, err := a.images()
	if err != nil {
		return 0, err
	}
	sig := a.signalsWatched()
	code, err := f(sig.ctx, c)
	if gave := sig.gaveUp(); gave != 0 && (err != nil || code != 0) {
		return gave, nil
	}
	return code, err
}
