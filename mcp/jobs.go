package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/jobs"
)

// told describes a job, for status, wait and cancel.
type told struct {
	JobID      string      `json:"job_id"`
	Status     jobs.Status `json:"status"`
	Elapsed    *float64    `json:"elapsed_seconds,omitempty"`
	StdoutTail *string     `json:"stdout_tail,omitempty"`
	ResultText *string     `json:"result_text,omitempty"`
	OutputPath string      `json:"output_path,omitempty"`
	ExitCode   *int        `json:"exit_code,omitempty"`
	Message    string      `json:"message,omitempty"`
	Cost       *float64    `json:"cost_usd,omitempty"`
	Total      *float64    `json:"total_usage_usd,omitempty"`
	news
	Manifest string   `json:"manifest,omitempty"`
	Outputs  []output `json:"outputs,omitempty"`
	Denied   []string `json:"denied,omitempty"`
	Receipt  *receipt `json:"receipt,omitempty"`
}

var (
	jobField     = field("job_id", "string", "job_id from a call with background=true").must()
	statusField  = field("status", "string", "").with("enum", []jobs.Status{jobs.Queued, jobs.Running, jobs.Succeeded, jobs.Failed, jobs.Cancelled}).must()
	messageField = field("message", "string", "why it failed, or what ended it")
	exitField    = field("exit_code", "integer", "after its end")
)

// tell returns the fields that status and wait share.
func tell(j *backend.Job) told {
	t := told{JobID: j.ID, Status: j.Status, Message: j.Message}
	if j.Cost != nil {
		t.Cost, t.Total = &j.Cost.Own, &j.Cost.Total
	}
	if j.Status.Over() && j.Outcome != nil && j.Outcome.Result != nil {
		code := j.Outcome.Result.ExitCode
		t.ExitCode, t.OutputPath, t.Manifest = &code, j.Outcome.OutputDir, j.Outcome.Manifest
		t.news = newsOf(j.Outcome.Result)
		t.Denied, t.Receipt = denied(j.Outcome.Result), receiptOf(j.Outcome.Result.Receipt)
	}
	return t
}

// elapsed returns the run time of a job in seconds, until now or its end.
func elapsed(j *backend.Job, now time.Time) float64 {
	if !j.Ended.IsZero() {
		now = j.Ended
	}
	return now.Sub(j.Started).Seconds()
}

// job reads job_id and calls f with it.
func (c *call) job(f func(context.Context, string) (*backend.Job, error)) (*backend.Job, error) {
	id, err := c.args.required("job_id")
	if err != nil {
		return nil, err
	}
	j, err := f(c.ctx, id)
	if errors.Is(err, backend.ErrNoJob) {
		return nil, fmt.Errorf("%w: %s", backend.ErrNoJob, id)
	}
	return j, err
}

func (s *Server) cancel() tool {
	return tool{
		name:        "sandbox_cancel",
		description: "End a background job and all its processes. Repeated calls are harmless.",
		in:          arguments(jobField),
		out:         results(jobField, statusField),
		hints:       hints{destructive: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			j, err := c.job(c.engine.Cancel)
			if err != nil {
				return nil, err
			}
			return answer(fmt.Sprintf("job_id: %s\nstatus: %s", j.ID, j.Status), told{JobID: j.ID, Status: j.Status}), nil
		},
	}
}

// announce sends one log message to the client when the job ends, if the client requested such
// messages (logging/setLevel).
func (c *call) announce(id string) {
	session, ctx := c.req.Session, context.Background()
	if c.req.ProtocolVersion() >= severalRounds { // in this protocol the call requests messages
		ctx = context.WithoutCancel(c.ctx)
	}
	go func() {
		j, err := c.engine.Wait(ctx, id, runner.Longest)
		if err != nil || !j.Status.Over() {
			return
		}
		message := j.Message
		if message == "" {
			message = "job " + string(j.Status)
		}
		session.Log(ctx, &sdk.LoggingMessageParams{
			Level: "info", Logger: "demesne.background-job",
			Data: map[string]any{"job_id": j.ID, "status": j.Status, "message": message},
		})
	}()
}
