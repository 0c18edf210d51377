package rest

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner"
	"demesne/server/backend"
)

func (s *Server) runRoutes() {
	huma.Register(s.api, operation("run", http.MethodPost, "/run", "Commands", "Run a command in a new sandbox"), s.run)
	streamed(s, operation("run-stream", http.MethodPost, "/run/stream", "Commands", "Run a command in a new sandbox, and stream its output"), s.runStream)
	huma.Register(s.api, operation("exec", http.MethodPost, "/sandboxes/{id}/exec", "Commands", "Run a command in a sandbox"), s.exec)
	streamed(s, operation("exec-stream", http.MethodPost, "/sandboxes/{id}/exec/stream", "Commands", "Run a command in a sandbox, and stream its output"), s.execStream)
}

// runInput is the request of run.
type runInput struct{ Body client.RunRequest }

// execInput is the request of exec.
type execInput struct {
	Named
	Body client.Command
}

// of is an answer with a body.
type of[T any] struct{ Body T }

func (s *Server) run(ctx context.Context, in *runInput) (*of[client.Result], error) {
	create, cmd, err := runOf(&in.Body)
	if err != nil {
		return nil, err
	}
	return collected(s.warned(ctx, create.Limits, &in.Body.Command)(s.opts.Backend.Run(ctx, create, cmd)))
}

func (s *Server) exec(ctx context.Context, in *execInput) (*of[client.Result], error) {
	cmd, err := commandOf(&in.Body)
	if err != nil {
		return nil, err
	}
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return collected(s.warned(ctx, runner.Limits{}, &in.Body)(s.opts.Backend.Exec(ctx, info.ID, cmd)))
}

// warned adds to a result what the operator's bounds reduced of the limits and the time that its command asked for.
func (s *Server) warned(ctx context.Context, l runner.Limits, q *client.Command) func(*Result, error) (*Result, error) {
	return func(r *Result, err error) (*Result, error) {
		if r != nil {
			timeout := time.Duration(q.TimeoutMS) * time.Millisecond
			r.Warnings = s.opts.Backend.Grants(ctx, l, timeout).Reduced(l, timeout)
		}
		return r, err
	}
}

func collected(r *Result, err error) (*of[client.Result], error) {
	if err != nil {
		return nil, unstarted(err)
	}
	return &of[client.Result]{resultOf(r)}, nil
}

// unstarted is failed for an error of a command. A program that does not exist is the request's fault: 404 would mean the
// sandbox.
func unstarted(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, backend.ErrNotFound) {
		return problem(http.StatusBadRequest, err.Error())
	}
	return failed(err)
}

func (s *Server) runStream(ctx context.Context, in *runInput) (starter, error) {
	create, cmd, err := runOf(&in.Body)
	return func(ctx context.Context, c Command) (*Result, error) {
		cmd.Stdout, cmd.Stderr, cmd.Began = c.Stdout, c.Stderr, c.Began
		return s.warned(ctx, create.Limits, &in.Body.Command)(s.opts.Backend.Run(ctx, create, cmd))
	}, err
}

func (s *Server) execStream(ctx context.Context, in *execInput) (starter, error) {
	cmd, err := commandOf(&in.Body)
	if err != nil {
		return nil, err
	}
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, c Command) (*Result, error) {
		cmd.Stdout, cmd.Stderr, cmd.Began = c.Stdout, c.Stderr, c.Began
		return s.warned(ctx, runner.Limits{}, &in.Body)(s.opts.Backend.Exec(ctx, info.ID, cmd))
	}, nil
}

// runOf checks a request of run.
func runOf(q *client.RunRequest) (create backend.Create, cmd Command, err error) {
	if cmd, err = commandOf(&q.Command); err != nil {
		return create, cmd, err
	}
	create, err = createOf(&client.Settings{Image: q.Image, Limits: q.Limits, Network: q.Network, Secrets: q.Secrets})
	return create, cmd, err
}

// commandOf checks a command.
func commandOf(q *client.Command) (c Command, err error) {
	switch {
	case q.Command != "" && len(q.Argv) > 0:
		return c, refused("argv", "excludes command")
	case q.Command != "":
		c.Argv = []string{"/bin/sh", "-c", q.Command}
	case len(q.Argv) > 0 && q.Argv[0] != "":
		c.Argv = q.Argv
	default:
		return c, refused("command", "command or argv is required")
	}
	if slices.ContainsFunc(append([]string{q.Dir}, c.Argv...), hasNUL) {
		return c, refused("command", "has a NUL byte")
	}
	if q.Dir != "" && !strings.HasPrefix(q.Dir, "/") {
		return c, refused("cwd", "not an absolute path")
	}
	if c.Env, err = environ(q.Env); err != nil {
		return c, err
	}
	c.Dir, c.Stdin, c.Timeout = q.Dir, q.Stdin, runner.Longest
	if q.TimeoutMS > 0 {
		c.Timeout = time.Duration(q.TimeoutMS) * time.Millisecond
	}
	return c, nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }

// environ returns variables in their order.
func environ(table map[string]string) (all []string, err error) {
	for name, value := range table {
		if name == "" || strings.ContainsAny(name, "=\x00") || hasNUL(value) {
			return nil, refused("env", "has a name or value that no variable can have")
		}
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all, nil
}

// resultOf returns what an answer has of a result. Of the output directory it has the name alone.
func resultOf(r *Result) client.Result {
	a := client.Result{
		Sandbox: r.Sandbox, ExitCode: r.ExitCode, Reason: string(r.Reason), Detail: r.Detail, Seconds: r.Seconds,
		CPU: r.CPU, MaxRSS: r.MaxRSS, Restarted: r.Restarted, Missing: r.MissingSecrets, Stdout: client.Output(r.Stdout), Stderr: client.Output(r.Stderr),
		Warnings: r.Warnings,
	}
	if r.Out != "" {
		a.Run = filepath.Base(r.Out)
	}
	for _, d := range r.Denied {
		a.Denied = append(a.Denied, client.Denied(d))
	}
	return a
}
