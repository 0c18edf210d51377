package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

func (c *remote) Run(ctx context.Context, q RunRequest) (*Result, error) {
	return got[Result](c, ctx, "run", http.MethodPost, "/run", nil, q)
}

func (c *remote) RunStream(ctx context.Context, q RunRequest, to Streams) (*Result, error) {
	return c.stream(ctx, "run", "/run/stream", q, to)
}

func (s sandboxes) Exec(ctx context.Context, sandbox string, q Command) (*Result, error) {
	return got[Result](s.remote, ctx, "exec", http.MethodPost, at(sandbox, "/exec"), nil, q)
}

func (s sandboxes) ExecStream(ctx context.Context, sandbox string, q Command, to Streams) (*Result, error) {
	return s.stream(ctx, "exec", at(sandbox, "/exec/stream"), q, to)
}

// stream runs a command whose output is copied as it comes.
func (c *remote) stream(ctx context.Context, verb, path string, in any, to Streams) (*Result, error) {
	var done *Result
	err := c.follow(ctx, http.MethodPost, path, nil, in, func(e sent) error {
		switch e.name {
		case "start":
			return to.start(&e)
		case "chunk":
			return to.chunk(&e)
		case "error":
			return e.failure()
		case "done":
			done = &Result{}
			if err := e.into(done); err != nil {
				return err
			}
			return errDone
		}
		return nil // of a later version
	})
	if errors.Is(err, errDone) {
		return done, nil
	}
	return nil, fmt.Errorf("%s: %w", verb, err)
}

func (to *Streams) start(e *sent) error {
	var s Started
	if err := e.into(&s); err != nil {
		return err
	}
	if to.Started != nil {
		to.Started(s.Sandbox)
	}
	return nil
}

func (to *Streams) chunk(e *sent) error {
	var c Chunk
	if err := e.into(&c); err != nil {
		return err
	}
	w := to.Stdout
	if c.Stream == "stderr" {
		w = to.Stderr
	}
	if w == nil {
		return nil
	}
	if _, err := io.WriteString(w, c.Text); err != nil {
		return fmt.Errorf("write %s: %w", c.Stream, err)
	}
	if _, err := w.Write(c.Base64); err != nil {
		return fmt.Errorf("write %s: %w", c.Stream, err)
	}
	return nil
}
