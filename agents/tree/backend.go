package tree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"demesne/agents"
	"demesne/mcp"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/runner/ipc"
	"demesne/session"
)

// children manages the children of one agent. It is the backend of the MCP server in that agent's sandbox. A child can
// have what the agent has, or less. session.Request.Create.Spec.Name and agents.Request.Name are the child's name.
type children struct{ n *node }

var _ mcp.Service = children{}

// errNotInside is the error of operations that only exist on the host.
var errNotInside = errors.New("not available inside a sandbox")

// begin reserves a name and a directory for a child. The caller calls drop if it was not created, or else done when it
// has ended.
func (f children) begin(name, tool string) (c *child, drop func(), err error) {
	n := f.n
	release, err := n.names.reserve(name)
	if err != nil {
		return nil, nil, err
	}
	n.mu.Lock()
	closed := n.closed
	if !closed {
		n.calls.Add(1)
	}
	n.mu.Unlock()
	if closed {
		release()
		return nil, nil, errParent
	}
	dir, err := makeChildDir(n.dirs.outDir, name)
	if err != nil {
		release()
		n.calls.Done()
		return nil, nil, err
	}
	c = &child{name: name, tool: tool, id: session.OutputName(), out: filepath.Join(n.dirs.out, childDir, name), dir: dir, at: n.places}
	return c, func() {
		dir.Close()
		removeChildDir(n.dirs.outDir, name)
		release()
		n.calls.Done()
	}, nil
}

// created adds a new child to its parent.
func (f children) created(c *child) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.children = append(f.n.children, c)
}

// done records the end of a child's work.
func (f children) done(c *child, code int) {
	f.n.mu.Lock()
	c.ended, c.exitCode = true, code
	f.n.mu.Unlock()
	if c.node == nil { // an agent closes its own
		c.dir.Close()
	}
	f.n.calls.Done()
}

// under returns a context that ends with ctx and with the agent.
func (f children) under(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(f.n.ctx, func() { cancel(context.Cause(f.n.ctx)) })
	return ctx, func(why error) { stop(); cancel(why) }
}

// inherit completes the sandbox of a child that runs commands.
func (f children) inherit(r *session.Request, c *child) (session.CreateOptions, error) {
	n := f.n
	o := r.Create
	if len(o.Spec.Inputs) > 0 || o.Spec.Workspace != "" || o.Spec.Key != "" {
		return o, errors.New("a child inherits its inputs and its workspace, and has no key")
	}
	mode, err := n.narrow(o.Egress.Mode, o.Egress.Allow, !slices.Contains(o.Unasked, "egress"))
	if err != nil {
		return o, err
	}
	o.Egress.Mode, o.Spec.Name, o.Egress.Ask = mode, "", 0
	o.Spec.Limits = narrowLimits(o.Spec.Limits, n.req.Limits)
	o.Spec.Workspace, o.Out, o.OutInside = n.dirs.workspace, c.out, true
	if !n.req.Research {
		o.Spec.Inputs = slices.Clone(n.req.Inputs)
	}
	own := n.protected()
	o.Spec.Mounts = slices.Concat(own, n.previous(len(own)))
	o.Spec.Lifetime = runner.Attached
	return o, nil
}

// Script runs a command in a sandbox of its own.
func (f children) Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	c, drop, err := f.begin(r.Create.Spec.Name, "sandbox_script")
	if err != nil {
		return nil, err
	}
	return f.script(ctx, r, c, drop, w)
}

func (f children) script(ctx context.Context, r session.Request, c *child, drop func(), w session.Callbacks) (*session.RunResult, error) {
	ctx, cancel := f.under(ctx)
	defer cancel(nil)
	o, err := f.inherit(&r, c)
	if err != nil {
		drop()
		return nil, err
	}
	o.Spec.Lifetime = runner.OneShot
	made := false
	w.Made = func(*session.Sandbox) { made = true; f.created(c) }
	run := r.Run
	run.Manifest, run.KeepEmpty = false, true
	d, err := f.n.tree.Sessions.Run(ctx, o, run, w)
	switch {
	case !made:
		drop()
	case err != nil:
		f.done(c, ExitFailed)
	default:
		f.done(c, d.ExitCode)
	}
	if err != nil {
		return nil, err
	}
	return c.inside(d), nil
}

// path returns the output directory of a child, as its parent knows it.
func (c *child) path() string { return c.at.At("/out/" + childDir + "/" + c.name) }

// inside gives the result of a child the path and the name that its parent knows.
func (c *child) inside(r *session.RunResult) *session.RunResult {
	r.Job, r.OutputDir = c.id, c.path()
	if r.Stdout.File != "" {
		r.Stdout.File = r.OutputDir + "/" + filepath.Base(r.Stdout.File)
	}
	return r
}

// Start runs Script in the background.
func (f children) Start(_ context.Context, r session.Request) (*session.Job, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	c, drop, err := f.begin(r.Create.Spec.Name, "sandbox_script")
	if err != nil {
		return nil, err
	}
	return f.n.jobs.start(f.n.ctx, r.Traits, func(ctx context.Context, j *job) (*session.RunResult, error) {
		return f.script(ctx, r, c, drop, session.Callbacks{Began: func(last func() session.Tail) { j.shows(last, nil) }})
	}).status(), nil
}

// Create makes a sandbox that lives until it is destroyed or the agent ends.
func (f children) Create(ctx context.Context, r session.Request, w session.Callbacks) (*session.Created, error) {
	c, drop, err := f.begin(r.Create.Spec.Name, "sandbox_create")
	if err != nil {
		return nil, err
	}
	ctx, cancel := f.under(ctx)
	defer cancel(nil)
	var sb *session.Sandbox
	o, err := f.inherit(&r, c)
	if err == nil {
		sb, err = f.n.tree.Sessions.Create(ctx, o, w)
	}
	if err != nil {
		drop()
		return nil, err
	}
	f.created(c)
	if !f.n.sandboxes.add(sb.ID, func() { f.done(c, 0) }) {
		f.n.tree.Sessions.Discard(sb.ID)
		f.done(c, ExitFailed)
		return nil, errParent
	}
	return &session.Created{ID: sb.ID, OutputDir: c.path(), Receipt: sb.Receipt, Told: func() {}}, nil
}

// Exec runs a command in a sandbox that this agent created.
func (f children) Exec(ctx context.Context, id string, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	if !f.n.sandboxes.has(id) {
		return nil, attachTo(id)
	}
	ctx, cancel := f.under(ctx)
	defer cancel(nil)
	r.Run.Shown = 0 // the agent could not reach a file of the host
	return f.n.tree.Sessions.Exec(ctx, id, r.Run, w)
}

// attachTo is the error of a sandbox that this agent does not have.
func attachTo(id string) error {
	return fmt.Errorf("attach to sandbox %s: %w", id, ipc.NoSuchSandbox(id))
}

// Destroy removes a sandbox that this agent created.
func (f children) Destroy(ctx context.Context, id string) error {
	if !f.n.sandboxes.has(id) {
		return attachTo(id)
	}
	err := f.n.tree.Sessions.Remove(ctx, id)
	if err == nil {
		f.n.sandboxes.remove(id)
	}
	return err
}

// Agent runs a child agent until it ends.
func (f children) Agent(ctx context.Context, r agents.Request, w session.Callbacks) (*agents.Result, error) {
	k, err := f.beginAgent(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := f.under(ctx)
	defer cancel(nil)
	return k.run(ctx, w)
}

// StartAgent runs Agent in the background.
func (f children) StartAgent(_ context.Context, r agents.Request) (*session.Job, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	k, err := f.beginAgent(r)
	if err != nil {
		return nil, err
	}
	return f.n.jobs.start(f.n.ctx, r.Traits, func(ctx context.Context, j *job) (*session.RunResult, error) {
		res, err := k.run(ctx, session.Callbacks{Began: func(last func() session.Tail) { j.shows(last, k.cost) }})
		if res == nil {
			return nil, err
		}
		j.shows(nil, k.cost)
		return &res.RunResult, err
	}).status(), nil
}

// childAgent is a child agent that is about to run.
type childAgent struct {
	f    children
	c    *child
	r    agents.Request
	drop func()
}

// beginAgent checks a request for a child agent.
func (f children) beginAgent(r agents.Request) (*childAgent, error) {
	n := f.n
	if r.Research {
		if err := n.mayResearch(); err != nil {
			return nil, err
		}
	}
	if len(r.Inputs) > 0 || r.Workspace != "" {
		return nil, errors.New("a child inherits its inputs and its workspace")
	}
	if err := n.mayStart(); err != nil {
		return nil, err
	}
	r.Inputs = nil
	if r.Research {
		r.Egress, r.Domains = "", nil
	} else {
		var err error
		if r.Egress, err = n.narrow(r.Egress, r.Domains, true); err != nil {
			return nil, err
		}
		if !n.req.Research {
			r.Inputs = n.req.Inputs
		}
	}
	r.Limits = narrowLimits(r.Limits, n.req.Limits)
	c, drop, err := f.begin(r.Name, r.Tool())
	if err != nil {
		return nil, err
	}
	return &childAgent{f, c, r, drop}, nil
}

// run runs the child to its end.
func (k *childAgent) run(ctx context.Context, w session.Callbacks) (*agents.Result, error) {
	n := k.f.n
	d := &dirs{base: filepath.Join(n.dirs.base, "children", k.c.name), sidecar: filepath.Join(n.dirs.sidecar, childDir, k.c.name), out: k.c.out, outDir: k.c.dir}
	if !k.r.Research {
		d.workspace = n.dirs.workspace
	}
	child, err := n.tree.newNode(ctx, n, k.r, d, k.c.id)
	if err != nil {
		k.drop()
		return nil, err
	}
	child.made = func() { k.f.created(k.c) }
	n.mu.Lock()
	k.c.node = child
	n.mu.Unlock()
	res, err := child.run(w)
	if !child.exists() {
		n.mu.Lock()
		k.c.node = nil
		n.mu.Unlock()
		k.drop()
		return nil, err
	}
	k.f.done(k.c, res.Result.ExitCode)
	k.c.inside(&res.RunResult)
	return res, err
}

// cost returns what the child has used so far.
func (k *childAgent) cost() *session.Cost {
	k.f.n.mu.Lock()
	child := k.c.node
	k.f.n.mu.Unlock()
	if child == nil {
		return &session.Cost{}
	}
	return child.cost()
}

// Status returns the state of a background job of this agent.
func (f children) Status(_ context.Context, id string) (*session.Job, error) {
	j, err := f.n.jobs.find(id)
	if err != nil {
		return nil, err
	}
	return j.status(), nil
}

// Wait returns the job at its end, or after timeout.
func (f children) Wait(ctx context.Context, id string, timeout time.Duration) (*session.Job, error) {
	return f.n.jobs.wait(ctx, id, timeout)
}

// Cancel ends a job with all its descendants.
func (f children) Cancel(ctx context.Context, id string) (*session.Job, error) {
	return f.n.jobs.stop(ctx, id)
}

// Upload is not available inside a sandbox.
func (children) Upload(context.Context, string, string, string, session.Callbacks) (session.Copied, error) {
	return session.Copied{}, errNotInside
}

// Download is not available inside a sandbox.
func (children) Download(context.Context, string, string, session.Callbacks) (session.Copied, error) {
	return session.Copied{}, errNotInside
}

// Files is not available inside a sandbox.
func (children) Files(context.Context, string, files.Request) (*files.Answer, error) {
	return nil, errNotInside
}

// List is not available inside a sandbox.
func (children) List(context.Context) (*session.Listing, error) { return nil, errNotInside }

// Fork is not available inside a sandbox.
func (children) Fork(context.Context, string, string) (*session.Created, error) {
	return nil, errNotInside
}

// ChangeLimits is not available inside a sandbox.
func (children) ChangeLimits(context.Context, string, runner.Limits) error { return errNotInside }

// CopyBetween is not available inside a sandbox.
func (children) CopyBetween(context.Context, string, string, string, string, session.Callbacks) (session.Copied, error) {
	return session.Copied{}, errNotInside
}

// Usage is not available inside a sandbox.
func (children) Usage(context.Context, string, string) (*agents.UsageReport, error) {
	return nil, errNotInside
}
