package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Jobs are the caller's commands in the background. Each has a sandbox of its own, and outlives its client.
type Jobs struct{ *remote }

// Jobs returns the caller's commands in the background.
func (c *Client) Jobs() Jobs { return Jobs{c.remote} }

// Start starts a command in a sandbox of its own.
func (j Jobs) Start(ctx context.Context, q JobRequest) (*Job, error) {
	return got[Job](j.remote, ctx, "start job", http.MethodPost, "/jobs", nil, q)
}

// List returns jobs and agents, the newest first.
func (j Jobs) List(ctx context.Context) ([]Job, error) {
	return listed[Job](j.remote, ctx, "list jobs", "/jobs")
}

// Get describes a job, with the end of its output.
func (j Jobs) Get(ctx context.Context, id string) (*Job, error) {
	return got[Job](j.remote, ctx, "get job", http.MethodGet, "/jobs/"+segment(id), nil, nil)
}

// Cancel ends a job with its processes.
func (j Jobs) Cancel(ctx context.Context, id string) (*Job, error) {
	return got[Job](j.remote, ctx, "cancel job", http.MethodPost, "/jobs/"+segment(id)+"/cancel", nil, nil)
}

// waitTime bounds one request that waits: a proxy may close a connection that is silent for longer.
const waitTime = 30 * time.Second

// Wait waits for the end of a job or an agent. The end of ctx ends only the waiting.
func (j Jobs) Wait(ctx context.Context, id string) (*Job, error) {
	q := query{"timeout_ms": strconv.FormatInt(waitTime.Milliseconds(), 10)}
	for {
		one, err := got[Job](j.remote, ctx, "wait for job", http.MethodPost, "/jobs/"+segment(id)+"/wait", q, nil)
		if err != nil || one.Over() {
			return one, err
		}
	}
}

// Over reports whether the job has ended.
func (j *Job) Over() bool { return j.Status != "queued" && j.Status != "running" }

// Output returns what the job wrote to stdout or stderr, and writes until it ends. The caller closes it.
func (j Jobs) Output(ctx context.Context, id, stream string) (io.ReadCloser, error) {
	resp, err := j.send(ctx, http.MethodGet, "/jobs/"+segment(id)+"/"+segment(stream), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read output of job: %w", err)
	}
	return resp.Body, nil
}

// Outputs are the files that a command, a job or an agent left in /out. run is the field Run of its [Result] or [Job].
// Files of a persistent sandbox are read by [Files].
type Outputs struct{ *remote }

// Outputs returns what commands, jobs and agents left in /out.
func (c *Client) Outputs() Outputs { return Outputs{c.remote} }

// List returns the files. It fails with ErrNotFound for a run that left none, and for one of another namespace.
func (o Outputs) List(ctx context.Context, run string) ([]OutputFile, error) {
	return listed[OutputFile](o.remote, ctx, "list outputs", "/outputs/"+segment(run))
}

// Open returns the content of one of them, which a sandbox made. The caller closes it.
func (o Outputs) Open(ctx context.Context, run, path string) (io.ReadCloser, error) {
	resp, err := o.send(ctx, http.MethodGet, "/outputs/"+segment(run)+"/raw", query{"path": path}, nil)
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	return resp.Body, nil
}

// Agents are jobs that are coding agents. The methods of [Jobs] accept them too.
type Agents struct{ *remote }

// Agents returns the caller's coding agents.
func (c *Client) Agents() Agents { return Agents{c.remote} }

// Start starts an agent.
func (a Agents) Start(ctx context.Context, q AgentRequest) (*Job, error) {
	return got[Job](a.remote, ctx, "start agent", http.MethodPost, "/agents", nil, q)
}

// List returns agents with their cost, the newest first.
func (a Agents) List(ctx context.Context) ([]Job, error) {
	return listed[Job](a.remote, ctx, "list agents", "/agents")
}

// Get describes an agent. Stdout tells what it does, and at its end has the answer.
func (a Agents) Get(ctx context.Context, id string) (*Job, error) {
	return got[Job](a.remote, ctx, "get agent", http.MethodGet, "/agents/"+segment(id), nil, nil)
}

// Trace returns what an agent did.
func (a Agents) Trace(ctx context.Context, id string) (*Trace, error) {
	return got[Trace](a.remote, ctx, "get trace", http.MethodGet, "/agents/"+segment(id)+"/trace", nil, nil)
}
