package main

import (
	"context"
	"fmt"
	"os"

	"demesne/agents"
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
	attend []string        // the command that calls attend; the job's id is appended
	agents *agents.Catalog // nil in the process of a job
}

func (f *face) Script(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	c, err := session.Request(r).Create()
	if err != nil {
		return nil, err
	}
	d, err := f.Service.Run(ctx, c, session.Request(r).Run(), session.Request(r).Callbacks(w))
	if err != nil {
		return nil, explained(err)
	}
	return d.Backend(), nil
}

func (f *face) Exec(ctx context.Context, id string, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	d, err := f.Service.Exec(ctx, id, session.Request(r).Run(), session.Request(r).Callbacks(w))
	if err != nil {
		return nil, attached(id, err)
	}
	return d.Backend(), nil
}

func (f *face) Create(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.Created, error) {
	c, err := session.Request(r).Create()
	if err != nil {
		return nil, err
	}
	sb, err := f.Service.Create(ctx, c, session.Request(r).Callbacks(w))
	if err != nil {
		return nil, explained(err)
	}
	info, err := f.Inspect(ctx, sb.ID)
	if err != nil {
		if !sb.Existing {
			f.Discard(sb.ID) // the caller will never learn its id
		}
		return nil, explained(err)
	}
	return &backend.Created{
		ID: sb.ID, OutputDir: sb.Out, Replaced: sb.Replaced, Receipt: info.Receipt, Expires: info.Expires,
		Told: func() { f.known(sb.ID) },
	}, nil
}

// known tells the runner that the id has reached the caller. If that fails, the caller's next command does it.
func (f *face) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
	defer cancel()
	f.Open(ctx, id, session.Callbacks{})
}

func (f *face) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	sb, err := f.Open(ctx, id, session.Callbacks{})
	if err != nil {
		return nil, attached(id, err)
	}
	a, err := sb.Files(ctx, r)
	return a, attached(id, err)
}

// Upload copies a file or directory of the host into a sandbox. src must be free of symbolic links.
func (f *face) Upload(ctx context.Context, id, src, dst string, w backend.Callbacks) (backend.Copied, error) {
	did, err := f.Copy(ctx, session.Place{Path: src}, session.Place{Sandbox: id, Path: dst}, session.Callbacks{Moves: w.Moves})
	return backend.Copied{Report: did, Path: dst}, attached(id, err)
}

func (f *face) Download(ctx context.Context, id, src string, w backend.Callbacks) (backend.Copied, error) {
	did, path, err := f.Service.Download(ctx, id, src, session.Callbacks{Moves: w.Moves})
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
	return &face{Service: s, jobs: store, attend: []string{self, "job"}}, nil
}

var _ backend.Backend = (*face)(nil)
