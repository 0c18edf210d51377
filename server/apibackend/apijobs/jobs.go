// Package apijobs implements the jobs of package rest over the background jobs of MCP's callers.
package apijobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"demesne/agents"
	"demesne/client"
	"demesne/images"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/mcp"
	"demesne/mcp/toolbackend"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/apibackend/kinds"
	"demesne/session"
	"demesne/session/operator"
)

// Jobs implements the jobs of package rest over the jobs of the caller's namespace.
type Jobs struct {
	Of      func(namespace string) (*Tools, error)
	Service func(namespace string) (*apibackend.Backend, error)
}

// Tools are the tools for the callers of one namespace.
type Tools struct {
	*toolbackend.Backend
	Outputs *mcp.Server
}

// notFound is an error for which the API answers 404.
type notFound struct{ error }

func (notFound) Is(target error) bool { return target == session.ErrNotFound }

func (e notFound) Unwrap() error { return e.error }

func (b Jobs) mine(ctx context.Context) (*Tools, error) {
	return b.Of(server.CallerOf(ctx).Namespace)
}

// with calls f with the caller's tools, and converts the job.
func (b Jobs) with(ctx context.Context, id string, f func(*Tools) (*session.Job, error)) (*client.Job, error) {
	tools, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	j, err := f(tools)
	if err != nil {
		return nil, unknownJob(id, err)
	}
	out := jobOf(j)
	if out.Agent = j.Cost != nil; out.Agent {
		out.Command, out.Conversation = text.Shorten(j.Command, promptShown), tools.ConversationOf(&j.Job)
	}
	if o := j.Outcome; o != nil {
		out.Stdout, out.Stderr = outputOf(o.Stdout), outputOf(o.Stderr)
	}
	return &out, nil
}

func unknownJob(id string, err error) error {
	if errors.Is(err, session.ErrNoJob) {
		return notFound{fmt.Errorf("no such job: %q", id)}
	}
	return err
}

func outputOf(t session.Tail) *client.Output {
	return &client.Output{Text: t.Text, Bytes: t.Bytes, Cut: t.Cut}
}

// jobOf returns a job without its output, and without paths of the host.
func jobOf(j *session.Job) client.Job {
	out := client.Job{JobTraits: client.JobTraits(j.Traits), ID: j.ID, Status: string(j.Status), Started: j.Started, Ended: j.Ended, Message: j.Message}
	if o := j.Outcome; o != nil && j.Status.Over() {
		out.Run = o.Job
		out.Status = string(j.Status.With(o.Result))
		if r := o.Result; r != nil {
			out.Exit, out.Spent = &r.ExitCode, client.Spent{CPU: r.CPU, MaxRSS: r.MaxRSS}
			if out.Run == "" && r.Out != "" {
				out.Run = filepath.Base(r.Out)
			}
			if r.Reason != runner.Exited {
				out.Reason = string(r.Reason)
			}
		}
	}
	if c := j.Cost; c != nil {
		out.Cost = &client.AgentCost{Own: c.Own, Total: c.Total, Models: map[string]client.Tokens{}}
		for model, t := range c.PerModel {
			out.Cost.Models[model] = client.Tokens(t)
		}
	}
	return out
}

func (b Jobs) Get(ctx context.Context, id string) (*client.Job, error) {
	return b.with(ctx, id, func(f *Tools) (*session.Job, error) { return f.Status(ctx, id) })
}

func (b Jobs) Wait(ctx context.Context, id string, most time.Duration) (*client.Job, error) {
	return b.with(ctx, id, func(f *Tools) (*session.Job, error) { return f.Wait(ctx, id, most) })
}

func (b Jobs) Cancel(ctx context.Context, id string) (*client.Job, error) {
	return b.with(ctx, id, func(f *Tools) (*session.Job, error) { return f.Backend.Cancel(ctx, id) })
}

// The bounds of a command in a list, and of an agent's prompt that is shown by itself, in bytes.
const commandShown, promptShown = 256, 64 << 10

func (b Jobs) List(ctx context.Context) ([]client.Job, error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	l, err := f.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []client.Job
	for _, one := range l.Jobs {
		if one.Agent { // its cost is read from its files
			if j, err := f.Status(ctx, one.ID); err == nil {
				one.Cost = j.Cost
			}
		}
		out := jobOf(one)
		out.Agent, out.Command = one.Agent, text.Shorten(one.Command, commandShown)
		if one.Agent {
			out.Conversation = f.ConversationOf(&one.Job)
		}
		all = append(all, out)
	}
	return all, nil
}

// Start implements [rest.Jobs]. The sandbox has what one without a job would have.
func (b Jobs) Start(ctx context.Context, r session.Request) (*client.Job, error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	service, err := b.Service(server.CallerOf(ctx).Namespace)
	if err != nil {
		return nil, err
	}
	if err := enough(service.Policy, r.Create.Spec.Limits, r.Run.Command.Timeout); err != nil {
		return nil, err
	}
	if r.Create, err = service.Allowed(r, false); err != nil {
		return nil, err
	}
	r.Run = service.Timed(r.Run)
	r.Run.Logs, r.Run.Manifest, r.Run.Command.Account = true, true, true
	r.Run.Command.Dir = cmp.Or(r.Run.Command.Dir, "/out")
	j, err := f.Start(ctx, r)
	if err != nil {
		return nil, unstarted(err)
	}
	return b.Get(ctx, j.ID)
}

// enough refuses a job that would get less than it asks for: it has no answer that could say so later.
func enough(p *operator.Policy, l runner.Limits, timeout time.Duration) error {
	for _, r := range p.Grant(l, timeout).Reduced {
		if r.Name != "timeout" || timeout < runner.Longest { // one that asks for none
			return fmt.Errorf("%w: %s: %.15g is more than %.15g, the operator's maximum", session.ErrInvalid, r.Field(), r.Asked, r.Granted)
		}
	}
	return nil
}

// unstarted gives the error of a job that was not started its kind.
func unstarted(err error) error {
	switch {
	case errors.Is(err, jobs.ErrFull):
		return kinds.As(err, session.ErrQueueFull)
	case errors.Is(err, mcp.ErrNoResearch):
		return kinds.As(err, session.ErrInvalid)
	}
	return kinds.Invalid(err)
}

// StartAgent implements [rest.Jobs].
func (b Jobs) StartAgent(ctx context.Context, r agents.Request, files []client.NamedFile) (_ *client.Job, err error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	service, err := b.Service(server.CallerOf(ctx).Namespace)
	if err != nil {
		return nil, err
	}
	staged, drop, err := f.stage(files)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			drop()
		}
	}()
	r.Inputs = staged
	if id := r.Continues; id != "" {
		r.Continues = ""
		if r, err = agents.FollowUp(f.Service, id, false, r); errors.Is(err, jobs.ErrUnknown) {
			return nil, unknownJob(id, session.ErrNoJob)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", session.ErrInvalid, err)
		}
	}
	if r.Research && len(r.Inputs) > 0 {
		return nil, fmt.Errorf("%w: files: an agent with the whole network gets none", session.ErrInvalid)
	}
	if r.Research {
		if err := f.MayResearch(); err != nil {
			return nil, unstarted(err)
		}
	}
	if err := enough(service.Policy, r.Limits, r.Timeout); err != nil {
		return nil, err
	}
	if r, err = bounded(service.Policy, r); err != nil {
		return nil, kinds.Invalid(err)
	}
	if err := f.CheckModel(r); err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrInvalid, err)
	}
	j, err := f.StartAgent(ctx, r)
	if err != nil {
		return nil, unstarted(err)
	}
	drop = func() {}
	return b.Get(ctx, j.ID)
}

// stage writes files into a new directory, and returns them as inputs. drop removes them.
func (f *Tools) stage(files []client.NamedFile) (inputs []runner.Input, drop func(), err error) {
	if len(files) == 0 {
		return nil, func() {}, nil
	}
	d, err := f.NewDirectory("")
	if err != nil {
		return nil, nil, err
	}
	drop = func() {
		for _, in := range inputs {
			os.Remove(in.Path)
		}
		d.Undo()
	}
	for _, file := range files {
		in := runner.Input{Path: filepath.Join(d.Path, file.Name), Name: file.Name}
		if !filepath.IsLocal(file.Name) || filepath.Dir(in.Path) != d.Path || strings.ContainsRune(file.Name, 0) {
			err = fmt.Errorf("%w: files: %q is not a name", session.ErrInvalid, file.Name)
		} else {
			err = fsutil.CreateFile(in.Path, file.Content, 0o600)
		}
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: files: %q is there twice", session.ErrInvalid, file.Name)
		}
		if err != nil {
			drop()
			return nil, nil, err
		}
		inputs = append(inputs, in)
	}
	d.Close()
	return inputs, drop, nil
}

// bounded returns an agent within the operator's bounds.
func bounded(p *operator.Policy, r agents.Request) (agents.Request, error) {
	if r.Image != "" && r.Image != "host" {
		_, pull, err := p.Image(r.Image)
		if err != nil {
			return r, err
		}
		r.Stored = pull == images.PullNever
	}
	if r.Egress == "open" {
		return r, fmt.Errorf("%w: network.mode: an agent with the whole network is research", session.ErrInvalid)
	}
	e, err := p.Network(session.Egress{Mode: r.Egress, Allow: r.Domains})
	if err != nil {
		return r, err
	}
	if r.Egress, r.Domains = e.Mode, e.Allow; r.Research {
		r.Egress, r.Domains = "", nil
	}
	g := p.Grant(r.Limits, r.Timeout)
	r.Limits, r.Timeout = g.Limits, g.Timeout
	r.MaxCost, r.MaxTokens, err = p.Spend(r.MaxCost, r.MaxTokens)
	return r, err
}

func (b Jobs) Log(ctx context.Context, id, stream string, to func([]byte) error) error {
	f, err := b.mine(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return unknownJob(id, f.Backend.Log(ctx, id, stream, chunks(func(b []byte) error {
		err := to(b)
		if err != nil {
			cancel()
		}
		return err
	})))
}

// chunks is a writer of a function.
type chunks func([]byte) error

func (f chunks) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Models implements [rest.Jobs].
func (b Jobs) Models(ctx context.Context) []string {
	f, err := b.mine(ctx)
	if err != nil {
		return nil
	}
	return f.Models()
}

func (b Jobs) Trace(ctx context.Context, id string) (*client.Trace, error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	events, requests, err := f.Backend.Trace(ctx, id)
	if err != nil {
		return nil, unknownJob(id, err)
	}
	t := &client.Trace{Events: []client.TraceEvent{}, Requests: []client.ModelRequest{}}
	for _, e := range events {
		t.Events = append(t.Events, client.TraceEvent{Event: e.Kind, Model: e.Model, Agent: e.Agent, Tool: e.Tool, ID: e.ID, Text: e.Text, Failed: e.Failed, Cost: e.Cost})
	}
	for _, r := range requests {
		t.Requests = append(t.Requests, client.ModelRequest{Time: r.Time, Model: r.Model, Tokens: client.Tokens(r.Tokens)})
	}
	return t, nil
}

// Outputs implements [rest.Jobs].
func (b Jobs) Outputs(ctx context.Context, run string) (list []client.OutputFile, err error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	all, err := f.Outputs.Outputs(run)
	for _, o := range all {
		list = append(list, client.OutputFile{Path: o.Path, Size: o.Size, MIME: o.MIME})
	}
	return list, noRun(run, err)
}

// OpenOutput implements [rest.Jobs].
func (b Jobs) OpenOutput(ctx context.Context, run, path string) (*os.File, error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	file, err := f.Outputs.OpenOutput(run, path)
	return file, noRun(run, err)
}

func noRun(run string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return notFound{fmt.Errorf("run %q: no such output", run)}
	}
	return err
}
