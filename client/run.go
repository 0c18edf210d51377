package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Run makes a sandbox, runs a command in it, removes the sandbox, and returns the result. A failing command is a result, not
// an error.
func (c *Client) Run(ctx context.Context, q RunRequest) (*Result, error) {
	return got[Result](c.remote, ctx, "run", http.MethodPost, "/run", nil, q)
}

// RunStream is Run, and copies the output while the command runs.
func (c *Client) RunStream(ctx context.Context, q RunRequest, to Streams) (*Result, error) {
	return c.stream(ctx, "run", "/run/stream", q, to)
}

// Exec runs a command. It starts a stopped sandbox, and resumes a paused one.
func (s Sandboxes) Exec(ctx context.Context, sandbox string, q Command) (*Result, error) {
	return got[Result](s.remote, ctx, "exec", http.MethodPost, at(sandbox, "/exec"), nil, q)
}

// ExecStream is Exec, and copies the output while the command runs.
func (s Sandboxes) ExecStream(ctx context.Context, sandbox string, q Command, to Streams) (*Result, error) {
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
