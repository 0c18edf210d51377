// Package toolbackend implements the interfaces of package mcp/backend over a session: it turns requests of models into
// options of sandboxes, and results into answers. The programs that offer MCP tools link it.
//
//	server.go   from the environment's settings to an MCP server
//	config.go   what the environment allows models: paths, images, tool sets; ceilings.go, domains.go, secrets.go: the rest
//	backend.go  scripts, sandboxes and files; jobs.go, listing.go, agents.go, usage.go, code.go: by their names
//	words.go    hints of errors, in the words of tools
package toolbackend

import (
	"context"
	"slices"

	"demesne/agents"
	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/runner/jobs"
	"demesne/session"
)

// Backend is a [backend.Backend] over a session: it turns requests of models into sessions' options.
type Backend struct {
	*session.Service
	jobs    *jobs.Store
	options Options
	attend  []string // the command that calls Attend; the job's id is appended
	secrets secrets
	agents  *agents.Catalog                    // nil until Server
	hold    func(sandbox string) (done func()) // keeps a code session from ending; nil: this process has no sessions
}

// holding marks the code session of a sandbox as busy until done is called.
func (f *Backend) holding(sandbox string) (done func()) {
	if f.hold == nil {
		return func() {}
	}
	return f.hold(sandbox)
}

func (f *Backend) Script(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	c, err := f.secrets.create(r)
	if err != nil {
		return nil, err
	}
	done, err := f.options.place(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Steps != nil {
		all, err := r.Run().RunSteps(ctx, f.Service, c, r.Callbacks(w))
		return combined(all, explained(err))
	}
	d, err := f.Service.Run(ctx, c, r.Run(), r.Callbacks(w))
	if err != nil {
		return nil, explained(err)
	}
	return backend.ResultOf(d), nil
}

func (f *Backend) Exec(ctx context.Context, id string, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	defer f.holding(id)()
	done, err := f.options.place(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Steps != nil {
		all, err := r.Run().ExecSteps(ctx, f.Service, id, r.Callbacks(w))
		return combined(all, attached(id, err))
	}
	d, err := f.Service.Exec(ctx, id, r.Run(), r.Callbacks(w))
	if err != nil {
		return nil, attached(id, err)
	}
	return backend.ResultOf(d), nil
}

func (f *Backend) Create(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.Created, error) {
	c, err := f.secrets.create(r)
	if err != nil {
		return nil, err
	}
	sb, err := f.Service.Create(ctx, c, r.Callbacks(w))
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
func (f *Backend) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
	defer cancel()
	f.Open(ctx, id, session.Callbacks{})
}

func (f *Backend) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	defer f.holding(id)()
	sb, err := f.Open(ctx, id, session.Callbacks{})
	if err != nil {
		return nil, attached(id, err)
	}
	a, err := sb.Files(ctx, r)
	return a, attached(id, err)
}

// Upload copies a file or directory of the host into a sandbox. src must be free of symbolic links.
func (f *Backend) Upload(ctx context.Context, id, src, dst string, w backend.Callbacks) (backend.Copied, error) {
	defer f.holding(id)()
	did, err := f.Copy(ctx, session.Place{Path: src}, session.Place{Sandbox: id, Path: dst}, session.Callbacks{Moves: w.Moves})
	return backend.Copied{Report: did, Path: dst}, attached(id, err)
}

func (f *Backend) Download(ctx context.Context, id, src string, w backend.Callbacks) (backend.Copied, error) {
	defer f.holding(id)()
	did, path, err := f.Service.Download(ctx, id, src, session.Callbacks{Moves: w.Moves})
	return backend.Copied{Report: did, Path: path}, attached(id, err)
}

// Destroy removes a sandbox, and its output directory if that is empty. It fails if the sandbox does not exist.
func (f *Backend) Destroy(ctx context.Context, id string) error {
	return attached(id, f.Remove(ctx, id))
}

var _ backend.Backend = (*Backend)(nil)

// combined returns the results of a list of commands as one: that of the first failure, or else of the last command.
func combined(all []*session.RunResult, err error) (*backend.RunResult, error) {
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var steps []*backend.RunResult
	for _, d := range all {
		steps = append(steps, backend.ResultOf(d))
	}
	shown := slices.IndexFunc(all, func(d *session.RunResult) bool { return d.Failed })
	if shown < 0 {
		shown = len(all) - 1
	}
	whole := *steps[shown]
	if whole.Steps = steps; !whole.Failed && whole.Result.ExitCode != 0 { // it was allowed
		result := *whole.Result
		result.ExitCode, result.Reason, result.Signal, result.Detail = 0, runner.Exited, 0, ""
		whole.Result = &result
	}
	if whole.OutputDir == "" {
		whole.OutputDir = steps[0].OutputDir
	}
	return &whole, nil
}
