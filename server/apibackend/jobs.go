package apibackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"demesne/client"
	"demesne/mcp"
	"demesne/mcp/toolbackend"
	"demesne/runner"
	"demesne/server"
	"demesne/session"
)

// Jobs implements the jobs of package rest over the tools of the caller's namespace, so that a job of that API passes the
// checks of a job of a model.
type Jobs struct {
	Of func(namespace string) (*Tools, error)
}

// Tools are what the callers of one namespace use.
type Tools struct {
	*toolbackend.Backend
	Caller *mcp.Caller // of the tools that Backend.Server offers
}

// notFound is an error for which the API answers 404.
type notFound struct{ error }

func (notFound) Is(target error) bool { return target == session.ErrNotFound }

func (e notFound) Unwrap() error { return e.error }

// refusal is an error for which the API answers 400.
type refusal struct{ error }

func (refusal) Is(target error) bool { return target == session.ErrInvalid }

func (b Jobs) mine(ctx context.Context) (*Tools, error) {
	return b.Of(server.CallerOf(ctx).Namespace)
}

// with calls f with the caller's face, and converts the job.
func (b Jobs) with(ctx context.Context, id string, f func(*Tools) (*session.Job, error)) (*client.Job, error) {
	face, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	j, err := f(face)
	if err != nil {
		return nil, unknownJob(id, err)
	}
	out := jobOf(j)
	out.Agent = j.Cost != nil
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
	out := client.Job{ID: j.ID, Status: string(j.Status), Started: j.Started, Ended: j.Ended, Message: j.Message}
	if o := j.Outcome; o != nil && j.Status.Over() {
		out.Run = o.Job
		out.Status = string(j.Status.With(o.Result))
		if r := o.Result; r != nil {
			out.Exit = &r.ExitCode
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

// commandShown bounds a command in a list, in bytes.
const commandShown = 256

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
	for i := range l.Jobs {
		one := &l.Jobs[i]
		if one.Agent { // its cost is read from its files
			if j, err := f.Status(ctx, one.ID); err == nil {
				one.Job.Cost = j.Cost
			}
		}
		out := jobOf(&one.Job)
		out.Agent, out.Command = one.Agent, beginning(one.Command)
		all = append(all, out)
	}
	return all, nil
}

// beginning returns the first part of a command.
func beginning(s string) string {
	if len(s) <= commandShown {
		return s
	}
	n := commandShown
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// start calls a tool that starts a job, and returns the job.
func (b Jobs) start(ctx context.Context, tool string, args map[string]any) (*client.Job, error) {
	f, err := b.mine(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.Closed(); err != nil {
		return nil, err
	}
	args["background"] = true
	var started struct {
		ID string `json:"job_id"`
	}
	if err := f.Caller.Call(ctx, tool, args, &started); err != nil {
		return nil, refusal{err}
	}
	return b.Get(ctx, started.ID)
}

func (b Jobs) Start(ctx context.Context, r *client.JobRequest) (*client.Job, error) {
	args := sandboxArgs(r.Image, r.Limits, r.Network)
	args["command"] = r.Command.Command
	if len(r.Argv) > 0 {
		args["command"] = "exec " + quoted(r.Argv)
	}
	add(args, "env", r.Env, len(r.Env) > 0)
	add(args, "cwd", r.Dir, r.Dir != "")
	add(args, "stdin", r.Stdin, r.Stdin != "")
	add(args, "timeout_seconds", float64(r.TimeoutMS)/1000, r.TimeoutMS > 0)
	return b.start(ctx, "sandbox_script", args)
}

func (b Jobs) StartAgent(ctx context.Context, r *client.AgentRequest) (*client.Job, error) {
	tool, args := "sandbox_agent", sandboxArgs(r.Image, r.Limits, r.Network)
	if r.Research {
		tool = "sandbox_research"
		delete(args, "egress")
	}
	for name, text := range map[string]string{"prompt": r.Prompt, "model": r.Model, "preamble": r.Preamble, "output_path": r.OutputPath, "output_format": r.OutputFormat} {
		add(args, name, text, text != "")
	}
	add(args, "success_criteria", r.Criteria, len(r.Criteria) > 0)
	add(args, "max_cost_usd", r.MaxCost, r.MaxCost > 0)
	add(args, "max_tokens", r.MaxTokens, r.MaxTokens > 0)
	add(args, "max_turns", r.MaxTurns, r.MaxTurns > 0)
	add(args, "timeout_seconds", float64(r.TimeoutMS)/1000, r.TimeoutMS > 0)
	return b.start(ctx, tool, args)
}

func add(args map[string]any, name string, value any, given bool) {
	if given {
		args[name] = value
	}
}

// sandboxArgs returns the arguments of a tool that makes a sandbox. Without a network the sandbox has none.
func sandboxArgs(image string, l *client.Limits, n *client.Network) map[string]any {
	args := map[string]any{"egress": "none"}
	add(args, "image", image, image != "")
	if l != nil {
		args["limits"] = map[string]any{"memory": l.Memory, "cpus": l.CPUs, "pids": l.PIDs, "disk": l.Disk}
	}
	if n != nil {
		add(args, "egress", n.Mode, n.Mode != "")
		add(args, "allowed_domains", n.Allow, len(n.Allow) > 0)
	}
	return args
}

// quoted returns words as a shell reads them.
func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return strings.Join(all, " ")
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
	all, err := f.Caller.Outputs(run)
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
	file, err := f.Caller.OpenOutput(run, path)
	return file, noRun(run, err)
}

func noRun(run string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return notFound{fmt.Errorf("run %q: no such output", run)}
	}
	return err
}
