// Package toolbackend implements the interfaces of package mcp over a session: it turns requests of models into
// options of sandboxes, and results into answers. The programs that offer MCP tools link it.
//
//	server.go   from the environment's settings to an MCP server
//	config.go   what the environment allows models: paths, images, tool sets; ceilings.go, domains.go, secrets.go: the rest
//	backend.go  scripts, sandboxes and files; jobs.go, listing.go, agents.go, usage.go, code.go: by their names
//	words.go    hints of errors, in the words of tools
package toolbackend

import (
	"context"

	"demesne/agents"
	"demesne/mcp"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/runner/jobs"
	"demesne/session"
	"demesne/session/operator"
)

// Backend is a [mcp.Service] over a session: it turns requests of models into sessions' options.
type Backend struct {
	*session.Service
	jobs    *jobs.Store
	options Options
	attend  []string // the command that calls Attend; the job's id is appended
	policy  *operator.Policy
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

func (f *Backend) Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	c, err := f.create(r)
	if err != nil {
		return nil, err
	}
	done, err := f.options.place(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Run.Steps.List != nil {
		all, err := r.Run.RunSteps(ctx, f.Service, c, w)
		return joined(all, explained(err))
	}
	d, err := f.Service.Run(ctx, c, r.Run, w)
	return d, explained(err)
}

func (f *Backend) Exec(ctx context.Context, id string, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	defer f.holding(id)()
	done, err := f.options.place(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Run.Steps.List != nil {
		all, err := r.Run.ExecSteps(ctx, f.Service, id, w)
		return joined(all, attached(id, err))
	}
	d, err := f.Service.Exec(ctx, id, r.Run, w)
	return d, attached(id, err)
}

func (f *Backend) Create(ctx context.Context, r session.Request, w session.Callbacks) (*session.Created, error) {
	c, err := f.create(r)
	if err != nil {
		return nil, err
	}
	sb, err := f.Service.Create(ctx, c, w)
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
	return &session.Created{
		ID: sb.ID, OutputDir: sb.Out, Replaced: sb.Replaced, Receipt: info.Receipt, Expires: info.Expires,
		Told: func() { f.known(sb.ID) },
	}, nil
}

// create returns the sandbox that r asks for, with the values of its credentials.
func (f *Backend) create(r session.Request) (c session.CreateOptions, err error) {
	c = r.Create
	c.Egress.Secrets, err = f.policy.AllSecrets(r.Secrets)
	return c, err
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
func (f *Backend) Upload(ctx context.Context, id, src, dst string, w session.Callbacks) (session.Copied, error) {
	defer f.holding(id)()
	did, err := f.Copy(ctx, session.Place{Path: src}, session.Place{Sandbox: id, Path: dst}, session.Callbacks{Moves: w.Moves})
	return session.Copied{Report: did, Path: dst}, attached(id, err)
}

func (f *Backend) Download(ctx context.Context, id, src string, w session.Callbacks) (session.Copied, error) {
	defer f.holding(id)()
	did, path, err := f.Service.Download(ctx, id, src, session.Callbacks{Moves: w.Moves})
	return session.Copied{Report: did, Path: path}, attached(id, err)
}

// Destroy removes a sandbox, and its output directory if that is empty. It fails if the sandbox does not exist.
func (f *Backend) Destroy(ctx context.Context, id string) error {
	return attached(id, f.Remove(ctx, id))
}

var _ mcp.Service = (*Backend)(nil)

// joined returns the results of a list of commands as one.
func joined(all []*session.RunResult, err error) (*session.RunResult, error) {
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return session.Joined(all), nil
}
