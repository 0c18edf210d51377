// Package sandboxes executes the MCP tools for scripts, sandboxes and files over a session. The packages beside it use it to
// execute the other tools.
//
//	sandboxes.go  scripts, sandboxes and files; listing.go: lists, forks and copies between sandboxes
//	browse.go     browsers in sandboxes
//	web.go        pages of the web, and a search engine
//	words.go      hints of errors, in the words of tools
package sandboxes

import (
	"context"
	"fmt"

	"demesne/mcp/browser"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/server"
	"demesne/session"
	"demesne/session/operator"
)

// Sandboxes are the sandboxes of one namespace's callers, or of a program with one client.
type Sandboxes struct {
	*session.Service
	Policy    *operator.Policy
	Namespace string        // of the callers; empty: none
	Queue     *server.Queue // of the commands that calls wait for; nil: none waits
	// Hold keeps the code session of a sandbox from ending until done is called. nil: this process has no code sessions.
	Hold func(sandbox string) (done func())

	browsers browser.Browsers
}

// Open opens the session of the callers of a namespace.
func Open(o session.Options, p *operator.Policy, namespace string) (*Sandboxes, error) {
	o.Runner.Frontend = runner.FrontendMCP.In(namespace)
	if !o.Runner.Frontend.Known() {
		return nil, fmt.Errorf("namespace %q: not lower-case letters, digits and dashes", namespace)
	}
	s := session.New(o)
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Sandboxes{Service: s, Policy: p, Namespace: namespace}, nil
}

// holding marks the code session of a sandbox as busy until done is called.
func (f *Sandboxes) holding(sandbox string) (done func()) {
	if f.Hold == nil {
		return func() {}
	}
	return f.Hold(sandbox)
}

// Closed returns why no command may start now, or nil.
func (f *Sandboxes) Closed() error { return f.Queue.Closed() }

// Acquire waits until a command of the callers may run.
func (f *Sandboxes) Acquire(ctx context.Context) (done func(), err error) {
	return f.Queue.Acquire(server.WithCaller(ctx, server.InNamespace(f.Namespace)))
}

func (f *Sandboxes) Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	c, err := f.Options(r)
	if err != nil {
		return nil, err
	}
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Run.Steps.List != nil {
		all, err := r.Run.RunSteps(ctx, f.Service, c, w)
		return joined(all, Explained(err))
	}
	d, err := f.Service.Run(ctx, c, r.Run, w)
	return d, Explained(err)
}

func (f *Sandboxes) Exec(ctx context.Context, id string, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	defer f.holding(id)()
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Run.Steps.List != nil {
		all, err := r.Run.ExecSteps(ctx, f.Service, id, w)
		return joined(all, Attached(id, err))
	}
	d, err := f.Service.Exec(ctx, id, r.Run, w)
	return d, Attached(id, err)
}

func (f *Sandboxes) Create(ctx context.Context, r session.Request, w session.Callbacks) (*session.Created, error) {
	c, err := f.Options(r)
	if err != nil {
		return nil, err
	}
	sb, err := f.Service.Create(ctx, c, w)
	if err != nil {
		return nil, Explained(err)
	}
	info, err := f.Inspect(ctx, sb.ID)
	if err != nil {
		if !sb.Existing {
			f.Discard(sb.ID) // the caller will never learn its id
		}
		return nil, Explained(err)
	}
	return &session.Created{
		ID: sb.ID, OutputDir: sb.Out, Existing: sb.Existing, Replaced: sb.Replaced, Receipt: info.Receipt, Expires: info.Expires,
		Told: func() { f.known(sb.ID) },
	}, nil
}

// Options returns the sandbox that r asks for, with the values of its credentials.
func (f *Sandboxes) Options(r session.Request) (c session.CreateOptions, err error) {
	c = r.Create
	c.Egress.Secrets, err = f.Policy.AllSecrets(r.Secrets)
	return c, err
}

// known tells the runner that the id has reached the caller. If that fails, the caller's next command does it.
func (f *Sandboxes) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
	defer cancel()
	f.Open(ctx, id, session.Callbacks{})
}

func (f *Sandboxes) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	defer f.holding(id)()
	sb, err := f.Open(ctx, id, session.Callbacks{})
	if err != nil {
		return nil, Attached(id, err)
	}
	a, err := sb.Files(ctx, r)
	return a, Attached(id, err)
}

// Upload copies a file or directory of the host into a sandbox. src must be free of symbolic links.
func (f *Sandboxes) Upload(ctx context.Context, id, src, dst string, w session.Callbacks) (session.Copied, error) {
	defer f.holding(id)()
	did, err := f.Copy(ctx, session.Place{Path: src}, session.Place{Sandbox: id, Path: dst}, session.Callbacks{Moves: w.Moves})
	return session.Copied{Report: did, Path: dst}, Attached(id, err)
}

func (f *Sandboxes) Download(ctx context.Context, id, src string, w session.Callbacks) (session.Copied, error) {
	defer f.holding(id)()
	did, path, err := f.Service.Download(ctx, id, src, session.Callbacks{Moves: w.Moves})
	return session.Copied{Report: did, Path: path}, Attached(id, err)
}

// Destroy removes a sandbox, and its output directory if that is empty. It fails if the sandbox does not exist.
func (f *Sandboxes) Destroy(ctx context.Context, id string) error {
	return Attached(id, f.Remove(ctx, id))
}

// joined returns the results of a list of commands as one.
func joined(all []*session.RunResult, err error) (*session.RunResult, error) {
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return session.Joined(all), nil
}
