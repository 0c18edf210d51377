package rest

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"demesne/agents"
	"demesne/client"
	"demesne/runner/jobs"
	"demesne/server"
	"demesne/session"
)

// Jobs keeps background jobs and agents of the caller of a request. Each method fails with [session.ErrNotFound] for a job
// of another namespace.
type Jobs interface {
	Start(context.Context, session.Request) (*client.Job, error)
	List(context.Context) ([]client.Job, error)
	Get(ctx context.Context, id string) (*client.Job, error)
	// Wait returns the job when it has ended, or after most.
	Wait(ctx context.Context, id string, most time.Duration) (*client.Job, error)
	Cancel(ctx context.Context, id string) (*client.Job, error)
	// StartAgent starts an agent with more files in /in. The field Continues of the request is the id of a job.
	StartAgent(context.Context, agents.Request, []client.NamedFile) (*client.Job, error)
	Trace(ctx context.Context, id string) (*client.Trace, error)
	Models(context.Context) []string // of agents, the default first
	// Log copies a stream from an offset on, until the job ends.
	Log(ctx context.Context, id, stream string, to func(chunk []byte) error) error
	// Outputs lists what a job left in /out, by the name in its field run. OpenOutput opens one of the files.
	Outputs(ctx context.Context, run string) ([]client.OutputFile, error)
	OpenOutput(ctx context.Context, run, path string) (*os.File, error)
}

func (s *Server) jobRoutes() {
	if s.opts.Jobs == nil {
		return
	}
	f := jobAPI{s.opts.Jobs}
	const tag = "Jobs"
	start := operation("start-job", http.MethodPost, "/jobs", tag, "Run a command in the background")
	start.DefaultStatus = http.StatusCreated
	answers(s, start, f.startJob)
	answers(s, operation("list-jobs", http.MethodGet, "/jobs", tag, "List jobs, the newest first"), f.listJobs)
	answers(s, operation("get-job", http.MethodGet, "/jobs/{id}", tag, "Describe a job, with the end of its output"), f.getJob)
	answers(s, operation("wait-job", http.MethodPost, "/jobs/{id}/wait", tag, "Wait for the end of a job"), f.waitJob)
	answers(s, operation("cancel-job", http.MethodPost, "/jobs/{id}/cancel", tag, "End a job with its processes"), f.cancelJob)
	huma.Register(s.api, operation("job-output", http.MethodGet, "/jobs/{id}/{stream}", tag, "Get the output of a job, as it comes"), f.jobOutput)
	answers(s, operation("list-outputs", http.MethodGet, "/outputs/{run}", tag, "List the files that a command or a job left in /out"), f.listOutputs)
	huma.Register(s.api, operation("get-output", http.MethodGet, "/outputs/{run}/raw", tag, "Download a file that a command or a job left in /out"), f.getOutput)
	agent := operation("start-agent", http.MethodPost, "/agents", "Agents", "Start a coding agent as a job")
	agent.DefaultStatus, agent.MaxBodyBytes = http.StatusCreated, maxFileBody
	answers(s, agent, f.startAgent)
	answers(s, operation("list-agents", http.MethodGet, "/agents", "Agents", "List agents with their cost"), f.listAgents)
	answers(s, operation("get-agent", http.MethodGet, "/agents/{id}", "Agents", "Describe an agent, with its answer"), f.getJob)
	answers(s, operation("agent-trace", http.MethodGet, "/agents/{id}/trace", "Agents", "Get what an agent did"), f.agentTrace)
}

// jobAPI has the handlers of jobs.
type jobAPI struct{ Jobs }

// JobID names a job in a path.
type JobID struct {
	ID string `path:"id" maxLength:"64"`
}

type jobInput struct{ Body client.JobRequest }

type agentInput struct{ Body client.AgentRequest }

// waitInput says how long a request waits.
type waitInput struct {
	JobID
	Timeout int64 `query:"timeout_ms" minimum:"0" maximum:"172800000" default:"60000"`
}

// streamInput names a stream of a job.
type streamInput struct {
	JobID
	Stream string `path:"stream" enum:"stdout,stderr"`
}

// RunName names a run in a path.
type RunName struct {
	Run string `path:"run" maxLength:"128" doc:"The field run of a result or a job"`
}

// outputInput names a file of a run.
type outputInput struct {
	RunName
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Below /out"`
}

func (f jobAPI) startJob(ctx context.Context, in *jobInput) (*client.Job, error) {
	if (in.Body.Command.Command == "") == (len(in.Body.Argv) == 0) {
		return nil, refused("command", "either command or argv is required")
	}
	if err := plainNetwork(in.Body.Network); err != nil {
		return nil, err
	}
	r, err := runOf(&client.RunRequest{Command: in.Body.Command, Image: in.Body.Image, Limits: in.Body.Limits, Network: in.Body.Network})
	if err != nil {
		return nil, err
	}
	r.Traits = jobs.Traits(in.Body.JobTraits)
	return f.Start(ctx, r)
}

// plainNetwork refuses what only a sandbox with a live connection has.
func plainNetwork(n *client.Network) error {
	switch {
	case n == nil:
	case len(n.Deny) > 0:
		return refused("network.deny", "not possible in the background")
	case n.Ask:
		return refused("network.ask", "not possible in the background")
	}
	return nil
}

func (f jobAPI) listJobs(ctx context.Context, _ *struct{}) (client.Page[client.Job], error) {
	all, err := f.List(ctx)
	return page(all), err
}

func (f jobAPI) listAgents(ctx context.Context, _ *struct{}) (client.Page[client.Job], error) {
	all, err := f.List(ctx)
	return page(slices.DeleteFunc(all, func(j client.Job) bool { return !j.Agent })), err
}

func (f jobAPI) getJob(ctx context.Context, in *JobID) (*client.Job, error) {
	return f.Get(ctx, in.ID)
}

func (f jobAPI) waitJob(ctx context.Context, in *waitInput) (*client.Job, error) {
	return f.Wait(ctx, in.ID, time.Duration(in.Timeout)*time.Millisecond)
}

func (f jobAPI) cancelJob(ctx context.Context, in *JobID) (*client.Job, error) {
	return f.Cancel(ctx, in.ID)
}

// jobOutput streams the bytes of a stream. It ends with the job.
func (f jobAPI) jobOutput(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
	if _, err := f.Get(ctx, in.ID); err != nil {
		return nil, failed(err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "application/octet-stream")
		_, w := humago.Unwrap(hc)
		c := http.NewResponseController(w)
		err := f.Log(hc.Context(), in.ID, in.Stream, func(chunk []byte) error {
			c.SetWriteDeadline(time.Now().Add(server.StallTime))
			if _, err := w.Write(chunk); err != nil {
				return err
			}
			return c.Flush()
		})
		if err != nil {
			panic(http.ErrAbortHandler) // as in getOutput
		}
	}}, nil
}

func (f jobAPI) listOutputs(ctx context.Context, in *RunName) (client.Page[client.OutputFile], error) {
	all, err := f.Outputs(ctx, in.Run)
	return page(all), err
}

func (f jobAPI) getOutput(ctx context.Context, in *outputInput) (*huma.StreamResponse, error) {
	file, err := f.OpenOutput(ctx, in.Run, in.Path)
	if err != nil {
		return nil, failed(err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer file.Close()
		attach(hc, in.Path)
		_, w := humago.Unwrap(hc)
		if _, err := io.Copy(w, file); err != nil {
			panic(http.ErrAbortHandler) // no client takes a part for the whole
		}
	}}, nil
}

func (f jobAPI) startAgent(ctx context.Context, in *agentInput) (*client.Job, error) {
	if err := plainNetwork(in.Body.Network); err != nil {
		return nil, err
	}
	r, err := agentOf(&in.Body)
	if err != nil {
		return nil, err
	}
	return f.StartAgent(ctx, r, in.Body.Files)
}

func (f jobAPI) agentTrace(ctx context.Context, in *JobID) (*client.Trace, error) {
	return f.Trace(ctx, in.ID)
}

// agentOf checks a request for an agent.
func agentOf(q *client.AgentRequest) (r agents.Request, err error) {
	if strings.TrimSpace(q.Prompt) == "" {
		return r, refused("prompt", "prompt is required")
	}
	create, err := createOf(&client.Settings{Image: q.Image, Limits: q.Limits, Network: q.Network})
	c := &create.Create
	return agents.Request{
		Traits: jobs.Traits(q.JobTraits), Continues: q.Continue,
		Prompt: q.Prompt, Model: q.Model, Image: q.Image, Preamble: q.Preamble, OutputPath: q.OutputPath, OutputFormat: q.OutputFormat,
		SuccessCriteria: q.Criteria, Research: q.Research, Egress: c.Egress.Mode, Domains: c.Egress.Allow, Limits: c.Spec.Limits,
		MaxCost: q.MaxCost, MaxTokens: q.MaxTokens, MaxTurns: q.MaxTurns, Timeout: time.Duration(q.TimeoutMS) * time.Millisecond,
	}, err
}
