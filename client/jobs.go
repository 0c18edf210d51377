package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

type jobs struct{ *remote }

func (c *remote) Jobs() Jobs { return jobs{c} }

func (j jobs) Start(ctx context.Context, q JobRequest) (*Job, error) {
	return got[Job](j.remote, ctx, "start job", http.MethodPost, "/jobs", nil, q)
}

func (j jobs) List(ctx context.Context) ([]Job, error) {
	return listed[Job](j.remote, ctx, "list jobs", "/jobs")
}

func (j jobs) Get(ctx context.Context, id string) (*Job, error) {
	return got[Job](j.remote, ctx, "get job", http.MethodGet, "/jobs/"+segment(id), nil, nil)
}

func (j jobs) Cancel(ctx context.Context, id string) (*Job, error) {
	return got[Job](j.remote, ctx, "cancel job", http.MethodPost, "/jobs/"+segment(id)+"/cancel", nil, nil)
}

// waitTime bounds one request that waits: a proxy may close a connection that is silent for longer.
const waitTime = 30 * time.Second

func (j jobs) Wait(ctx context.Context, id string) (*Job, error) {
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

func (j jobs) Output(ctx context.Context, id, stream string) (io.ReadCloser, error) {
	resp, err := j.send(ctx, http.MethodGet, "/jobs/"+segment(id)+"/"+segment(stream), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read output of job: %w", err)
	}
	return resp.Body, nil
}

type outputs struct{ *remote }

func (c *remote) Outputs() Outputs { return outputs{c} }

func (o outputs) List(ctx context.Context, run string) ([]OutputFile, error) {
	return listed[OutputFile](o.remote, ctx, "list outputs", "/outputs/"+segment(run))
}

func (o outputs) Open(ctx context.Context, run, path string) (io.ReadCloser, error) {
	resp, err := o.send(ctx, http.MethodGet, "/outputs/"+segment(run)+"/raw", query{"path": path}, nil)
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	return resp.Body, nil
}

type agents struct{ *remote }

func (c *remote) Agents() Agents { return agents{c} }

func (a agents) Start(ctx context.Context, q AgentRequest) (*Job, error) {
	return got[Job](a.remote, ctx, "start agent", http.MethodPost, "/agents", nil, q)
}

func (a agents) List(ctx context.Context) ([]Job, error) {
	return listed[Job](a.remote, ctx, "list agents", "/agents")
}

func (a agents) Get(ctx context.Context, id string) (*Job, error) {
	return got[Job](a.remote, ctx, "get agent", http.MethodGet, "/agents/"+segment(id), nil, nil)
}

func (a agents) Trace(ctx context.Context, id string) (*Trace, error) {
	return got[Trace](a.remote, ctx, "get trace", http.MethodGet, "/agents/"+segment(id)+"/trace", nil, nil)
}
