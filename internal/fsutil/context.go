package fsutil

import (
	"context"
	"io"
)

// contextReader returns the context's error once the context has ended.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// ContextReader returns a reader of r that fails with ctx's error once ctx has ended.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }
