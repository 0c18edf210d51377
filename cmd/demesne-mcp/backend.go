package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"demesne/cmd/internal/session"
	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/runner/jobs"
)

// face is a [backend.Backend] over a session: it turns requests of models into sessions' options.
type face struct {
	*session.Service
	jobs   *jobs.Store
	attend []string // the command that calls attend; the job's id is appended
}

// outside is the default working directory.
const outside = "/out"

// createOptions returns the sandbox that r asks for.
func createOptions(r backend.Request) (c session.CreateOptions, err error) {
	c = session.CreateOptions{
		Spec: r.Spec, User: r.User, Unasked: r.UnaskedLimits,
		Egress: session.Egress{Mode: r.Egress, Allow: r.Domains},
	}
	if r.Ask {
		c.Egress.Ask = runner.AskTime
	}
	if !r.OwnImage {
		c.Unasked = append(c.Unasked, "image")
	}
	if !r.OwnEgress {
		c.Unasked = append(c.Unasked, "egress")
	}
	if c.Image, err = session.ParseImage(r.Image); err != nil {
		err = fmt.Errorf("image %q: %w", r.Image, err)
	}
	return c, err
}

// runOptions returns the command that r asks for.
func runOptions(r backend.Request) session.RunOptions {
	cmd := runner.Command{
		Argv: []string{"/bin/sh", "-c", r.Command}, Env: r.Env, Dir: cmp.Or(r.Dir, outside), User: r.Spec.User,
		Timeout: r.Timeout, Account: true,
	}
	if cmd.Timeout <= 0 {
		cmd.Timeout = runner.Longest
	}
	return session.RunOptions{Command: cmd, Stdin: r.Stdin, Logs: true, Manifest: true, Queue: r.Queue}
}

// callbacks returns the session's callbacks that call w.
func callbacks(r backend.Request, w backend.Callbacks) session.Callbacks {
	cb := session.Callbacks{Image: fetching(r.Image, w.Progress)}
	if w.Ask != nil {
		cb.Ask = func(q runner.Question, readable []string) (allow, answered bool) {
			return w.Ask(backend.Question{Name: q.Name, Port: q.Port, Inputs: readable}), true
		}
	}
	if w.Output != nil {
		cb.Began = func(last func() session.Tail) {
			w.Output(func() (string, int64) { t := last(); return t.Text, t.Bytes })
		}
	}
	return cb
}

// runResult converts a session's result.
func runResult(d *session.RunResult) *backend.RunResult {
	return &backend.RunResult{
		Job: filepath.Base(d.Out), OutputDir: d.Out, Manifest: d.Manifest, Result: d.Result,
		Stdout: backend.Tail(d.Stdout), Stderr: backend.Tail(d.Stderr),
	}
}

func (f *face) Script(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	c, err := createOptions(r)
	if err != nil {
		return nil, err
	}
	d, err := f.Service.Run(ctx, c, runOptions(r), callbacks(r, w))
	if err != nil {
		return nil, explained(err)
	}
	return runResult(d), nil
}

func (f *face) Exec(ctx context.Context, id string, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	d, err := f.Service.Exec(ctx, id, runOptions(r), callbacks(r, w))
	if err != nil {
		return nil, attached(id, err)
	}
	return runResult(d), nil
}

func (f *face) Create(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.Created, error) {
	c, err := createOptions(r)
	if err != nil {
		return nil, err
	}
	box, err := f.Service.Create(ctx, c, callbacks(r, w))
	if err != nil {
		return nil, explained(err)
	}
	info, err := f.Inspect(ctx, box.ID)
	if err != nil {
		if !box.Existing {
			f.Discard(box.ID) // the caller will never learn its id
		}
		return nil, explained(err)
	}
	return &backend.Created{
		ID: box.ID, OutputDir: box.Out, Replaced: box.Replaced, Receipt: info.Receipt, Expires: info.Expires,
		Told: func() { f.known(box.ID) },
	}, nil
}

// known tells the runner that the id has reached the caller. If that fails, the caller's next command does it.
func (f *face) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
	defer cancel()
	f.Open(ctx, id, session.Callbacks{})
}

func (f *face) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	box, err := f.Open(ctx, id, session.Callbacks{})
	if err != nil {
		return nil, attached(id, err)
	}
	a, err := box.Files(ctx, r)
	return a, attached(id, err)
}

// Upload copies a file or directory of the host into a sandbox. src must be free of symbolic links.
func (f *face) Upload(ctx context.Context, id, src, dst string) (backend.Copied, error) {
	did, err := f.Copy(ctx, session.Place{Path: src}, session.Place{Sandbox: id, Path: dst}, session.Callbacks{})
	return backend.Copied{Report: did, Path: dst}, attached(id, err)
}

func (f *face) Download(ctx context.Context, id, src string) (backend.Copied, error) {
	did, path, err := f.Service.Download(ctx, id, src)
	return backend.Copied{Report: did, Path: path}, attached(id, err)
}

// Destroy removes a sandbox, and its output directory if that is empty. It fails if the sandbox does not exist.
func (f *face) Destroy(ctx context.Context, id string) error { return attached(id, f.Remove(ctx, id)) }

// openFace opens the session and the jobs that the environment configures.
func openFace() (*face, error) {
	o := session.Options{}
	o.Runner.Frontend = runner.FrontendMCP
	s := session.New(o)
	if err := s.Check(); err != nil {
		return nil, err
	}
	store, err := s.Jobs()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	return &face{s, store, []string{self, "job"}}, nil
}

var _ backend.Backend = (*face)(nil)
