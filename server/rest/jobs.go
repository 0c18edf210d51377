package rest

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"demesne/agents"
	"demesne/client"
	"demesne/session"
)

// Jobs keeps background jobs and agents of the caller of a request. Each method fails with [backend.ErrNotFound] for a job
// of another namespace.
type Jobs interface {
	Start(context.Context, session.Request) (*client.Job, error)
	List(context.Context) ([]client.Job, error)
	Get(ctx context.Context, id string) (*client.Job, error)
	// Wait returns the job when it has ended, or after most.
	Wait(ctx context.Context, id string, most time.Duration) (*client.Job, error)
	Cancel(ctx context.Context, id string) (*client.Job, error)
	StartAgent(context.Context, agents.Request) (*client.Job, error)
	Trace(ctx context.Context, id string) (*client.Trace, error)
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
	huma.Register(s.api, start, f.startJob)
	huma.Register(s.api, operation("list-jobs", http.MethodGet, "/jobs", tag, "List jobs, the newest first"), f.listJobs)
	huma.Register(s.api, operation("get-job", http.MethodGet, "/jobs/{id}", tag, "Describe a job, with the end of its output"), f.getJob)
	huma.Register(s.api, operation("wait-job", http.MethodPost, "/jobs/{id}/wait", tag, "Wait for the end of a job"), f.waitJob)
	huma.Register(s.api, operation("cancel-job", http.MethodPost, "/jobs/{id}/cancel", tag, "End a job with its processes"), f.cancelJob)
	huma.Register(s.api, operation("job-output", http.MethodGet, "/jobs/{id}/{stream}", tag, "Get the output of a job, as it comes"), f.jobOutput)
	huma.Register(s.api, operation("list-outputs", http.MethodGet, "/outputs/{run}", tag, "List the files that a command or a job left in /out"), f.listOutputs)
	huma.Register(s.api, operation("get-output", http.MethodGet, "/outputs/{run}/raw", tag, "Download a file that a command or a job left in /out"), f.getOutput)
	agent := operation("start-agent", http.MethodPost, "/agents", "Agents", "Start a coding agent as a job")
	agent.DefaultStatus = http.StatusCreated
	huma.Register(s.api, agent, f.startAgent)
	huma.Register(s.api, operation("list-agents", http.MethodGet, "/agents", "Agents", "List agents with their cost"), f.listAgents)
	huma.Register(s.api, operation("get-agent", http.MethodGet, "/agents/{id}", "Agents", "Describe an agent, with its answer"), f.getJob)
	huma.Register(s.api, operation("agent-trace", http.MethodGet, "/agents/{id}/trace", "Agents", "Get what an agent did"), f.agentTrace)
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

// oneJob answers with a job.
func oneJob(j *client.Job, err error) (*of[client.Job], error) {
	if err != nil {
		return nil, failed(err)
	}
	return &of[client.Job]{*j}, nil
}

func (f jobAPI) startJob(ctx context.Context, in *jobInput) (*of[client.Job], error) {
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
	return oneJob(f.Jobs.Start(ctx, r))
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

func (f jobAPI) listJobs(ctx context.Context, _ *struct{}) (*of[client.Page[client.Job]], error) {
	return f.jobs(ctx, func(j *client.Job) bool { return true })
}

func (f jobAPI) listAgents(ctx context.Context, _ *struct{}) (*of[client.Page[client.Job]], error) {
	return f.jobs(ctx, func(j *client.Job) bool { return j.Agent })
}

func (f jobAPI) jobs(ctx context.Context, want func(*client.Job) bool) (*of[client.Page[client.Job]], error) {
	all, err := f.Jobs.List(ctx)
	if err != nil {
		return nil, failed(err)
	}
	page := client.Page[client.Job]{Items: []client.Job{}}
	for i := range all {
		if want(&all[i]) {
			page.Items = append(page.Items, all[i])
		}
	}
	return &of[client.Page[client.Job]]{page}, nil
}

func (f jobAPI) getJob(ctx context.Context, in *JobID) (*of[client.Job], error) {
	return oneJob(f.Jobs.Get(ctx, in.ID))
}

func (f jobAPI) waitJob(ctx context.Context, in *waitInput) (*of[client.Job], error) {
	return oneJob(f.Jobs.Wait(ctx, in.ID, time.Duration(in.Timeout)*time.Millisecond))
}

func (f jobAPI) cancelJob(ctx context.Context, in *JobID) (*of[client.Job], error) {
	return oneJob(f.Jobs.Cancel(ctx, in.ID))
}

// jobOutput streams the bytes of a stream. It ends with the job.
func (f jobAPI) jobOutput(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
	if _, err := f.Jobs.Get(ctx, in.ID); err != nil {
		return nil, failed(err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "application/octet-stream")
		_, w := humago.Unwrap(hc)
		c := http.NewResponseController(w)
		f.Jobs.Log(hc.Context(), in.ID, in.Stream, func(chunk []byte) error {
			c.SetWriteDeadline(time.Now().Add(stallTime))
			if _, err := w.Write(chunk); err != nil {
				return err
			}
			return c.Flush()
		})
	}}, nil
}

func (f jobAPI) listOutputs(ctx context.Context, in *RunName) (*of[client.Page[client.OutputFile]], error) {
	all, err := f.Jobs.Outputs(ctx, in.Run)
	if err != nil {
		return nil, failed(err)
	}
	page := client.Page[client.OutputFile]{Items: append([]client.OutputFile{}, all...)}
	return &of[client.Page[client.OutputFile]]{page}, nil
}

func (f jobAPI) getOutput(ctx context.Context, in *outputInput) (*huma.StreamResponse, error) {
	file, err := f.Jobs.OpenOutput(ctx, in.Run, in.Path)
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

func (f jobAPI) startAgent(ctx context.Context, in *agentInput) (*of[client.Job], error) {
	if err := plainNetwork(in.Body.Network); err != nil {
		return nil, err
	}
	r, err := agentOf(&in.Body)
	if err != nil {
		return nil, err
	}
	return oneJob(f.Jobs.StartAgent(ctx, r))
}

func (f jobAPI) agentTrace(ctx context.Context, in *JobID) (*of[client.Trace], error) {
	t, err := f.Jobs.Trace(ctx, in.ID)
	if err != nil {
		return nil, failed(err)
	}
	return &of[client.Trace]{*t}, nil
}

// agentOf checks a request for an agent.
func agentOf(q *client.AgentRequest) (r agents.Request, err error) {
	if strings.TrimSpace(q.Prompt) == "" {
		return r, refused("prompt", "prompt is required")
	}
	create, err := createOf(&client.Settings{Image: q.Image, Limits: q.Limits, Network: q.Network})
	c := &create.Create
	return agents.Request{
		Prompt: q.Prompt, Model: q.Model, Image: q.Image, Preamble: q.Preamble, OutputPath: q.OutputPath, OutputFormat: q.OutputFormat,
		SuccessCriteria: q.Criteria, Research: q.Research, Egress: c.Egress.Mode, Domains: c.Egress.Allow, Limits: c.Spec.Limits,
		MaxCost: q.MaxCost, MaxTokens: q.MaxTokens, MaxTurns: q.MaxTurns, Timeout: time.Duration(q.TimeoutMS) * time.Millisecond,
	}, err
}
