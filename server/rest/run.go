package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/client"
	"demesne/runner"
	"demesne/session"
)

func (s *Server) runRoutes() {
	answers(s, operation("run", http.MethodPost, "/run", "Commands", "Run a command in a new sandbox"), s.run)
	streamed(s, operation("run-stream", http.MethodPost, "/run/stream", "Commands", "Run a command in a new sandbox, and stream its output"), s.runStream)
	answers(s, operation("exec", http.MethodPost, "/sandboxes/{id}/exec", "Commands", "Run a command in a sandbox"), s.exec)
	streamed(s, operation("exec-stream", http.MethodPost, "/sandboxes/{id}/exec/stream", "Commands", "Run a command in a sandbox, and stream its output"), s.execStream)
}

// runInput is the request of run.
type runInput struct{ Body client.RunRequest }

// execInput is the request of exec.
type execInput = inSandbox[client.Command]

func (s *Server) run(ctx context.Context, in *runInput) (a client.Result, err error) {
	r, err := runOf(&in.Body)
	if err != nil {
		return a, err
	}
	d, err := s.service(ctx).Run(ctx, r, session.Callbacks{})
	return s.collected(ctx, r, d, err)
}

func (s *Server) exec(ctx context.Context, in *execInput) (a client.Result, err error) {
	run, err := s.execOf(ctx, in)
	if err != nil {
		return a, err
	}
	d, err := s.service(ctx).Exec(ctx, in.ID, run, session.Callbacks{})
	return s.collected(ctx, session.Request{Run: run}, d, err)
}

// execOf checks a request of exec.
func (s *Server) execOf(ctx context.Context, in *execInput) (run session.RunOptions, err error) {
	if err := target(in.ID); err != nil {
		return run, err
	}
	if run, err = commandOf(&in.Body); err == nil {
		err = s.execAs(ctx, in.ID, in.Body.User, &run.Command)
	}
	return run, err
}

// reduced lists what the operator's bounds reduced of the limits and the time that a request asked for.
func (s *Server) reduced(ctx context.Context, r session.Request) []string {
	return s.service(ctx).Grants(ctx, r.Create.Spec.Limits, r.Run.Command.Timeout).Warnings()
}

func (s *Server) collected(ctx context.Context, r session.Request, d *session.RunResult, err error) (client.Result, error) {
	if err != nil {
		return client.Result{}, unstarted(err)
	}
	return resultOf(d, s.reduced(ctx, r)), nil
}

// unstarted is failed for an error of a command. A program that does not exist is the request's fault: 404 would mean the
// sandbox.
func unstarted(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, session.ErrNotFound) {
		return problem(http.StatusBadRequest, err.Error())
	}
	return failed(err)
}

func (s *Server) runStream(_ context.Context, in *runInput) (started, error) {
	r, err := runOf(&in.Body)
	return started{r, func(ctx context.Context, o session.RunOptions, cb session.Callbacks) (*session.RunResult, error) {
		r.Run = o
		return s.service(ctx).Run(ctx, r, cb)
	}}, err
}

func (s *Server) execStream(ctx context.Context, in *execInput) (started, error) {
	run, err := s.execOf(ctx, in)
	return started{session.Request{Run: run}, func(ctx context.Context, o session.RunOptions, cb session.Callbacks) (*session.RunResult, error) {
		return s.service(ctx).Exec(ctx, in.ID, o, cb)
	}}, err
}

// runOf checks a request to run.
func runOf(q *client.RunRequest) (r session.Request, err error) {
	if r.Run, err = commandOf(&q.Command); err != nil {
		return r, err
	}
	create, err := createOf(&client.Settings{Image: q.Image, Limits: q.Limits, Network: q.Network, Group: q.Group, Secrets: q.Secrets})
	r.Create, r.Secrets = create.Create, create.Secrets
	if err == nil {
		err = runAs(&r, q.User)
	}
	return r, err
}

// commandOf checks a command.
func commandOf(q *client.Command) (r session.RunOptions, err error) {
	c := &r.Command
	switch {
	case q.Command != "" && len(q.Argv) > 0:
		return r, refused("argv", "excludes command")
	case q.Command != "":
		c.Argv = session.Shell(q.Command)
	case len(q.Argv) > 0 && q.Argv[0] != "":
		c.Argv = q.Argv
	default:
		return r, refused("command", "command or argv is required")
	}
	if slices.ContainsFunc(append([]string{q.Dir}, c.Argv...), hasNUL) {
		return r, refused("command", "has a NUL byte")
	}
	if q.Dir != "" && !strings.HasPrefix(q.Dir, "/") {
		return r, refused("cwd", "not an absolute path")
	}
	if c.Env, err = environ(q.Env); err != nil {
		return r, err
	}
	c.Dir, r.Stdin, c.Timeout = q.Dir, q.Stdin, runner.Longest
	if q.TimeoutMS > 0 {
		c.Timeout = time.Duration(q.TimeoutMS) * time.Millisecond
	}
	return r, nil
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

func outputOf(t session.Tail) client.Output {
	return client.Output{Text: t.Text, Bytes: t.Bytes, Cut: t.Cut}
}

// resultOf converts a result for an answer, with only the name of the output directory. The runner's document of a result
// has the API's names, and fields that the API does not have.
func resultOf(r *session.RunResult, warnings []string) (a client.Result) {
	if b, err := json.Marshal(r.Result); err == nil {
		json.Unmarshal(b, &a)
	}
	a.Stdout, a.Stderr, a.Warnings = outputOf(r.Stdout), outputOf(r.Stderr), warnings
	if r.Out != "" {
		a.Run = filepath.Base(r.Out)
	}
	return a
}
