package background

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"demesne/mcp/toolbackend/sandboxes"
	"demesne/runner/jobs"
	"demesne/session"
)

// List returns the sandboxes and jobs of MCP servers, the newest job first.
func (f *Jobs) List(ctx context.Context) (*session.Listing, error) {
	l, err := f.Sandboxes.List(ctx)
	if err != nil {
		return nil, err
	}
	all, err := f.store.List()
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	for _, j := range slices.Backward(all) {
		l.Jobs = append(l.Jobs, f.listedJob(j))
	}
	return l, nil
}

func (f *Jobs) listedJob(j *jobs.Job) session.ListedJob {
	t := session.ListedJob{Job: session.Job{ID: j.ID, Status: j.Status, Started: j.Started, Ended: j.Ended, Message: j.Message}}
	if t.Started.IsZero() {
		t.Started = j.Created
	}
	t.Outcome = &session.RunResult{Result: j.Result}
	var r struct {
		session.Request
		Prompt string // of an agent
	}
	if json.Unmarshal(j.Request, &r) == nil {
		t.Command, t.Agent = cmp.Or(r.Prompt, r.Text()), r.Prompt != ""
	}
	return t
}
