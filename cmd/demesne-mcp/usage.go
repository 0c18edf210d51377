package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demesne/agents"
	"demesne/mcp"
	"demesne/mcp/backend"
	"demesne/runner/jobs"
)

// offerAgents adds the models that this machine has credentials for.
func offerAgents(o *mcp.Options) error {
	catalog, err := agents.Open(agents.Options{})
	if err != nil {
		return err
	}
	o.Models = catalog.Models()
	o.Model = func(name, tool string) error {
		_, err := catalog.Choose(tool, name)
		return err
	}
	return nil
}

// Usage reports what an agent and its children used. dir, or a directory above it, is the agent's in the output root.
// job is the id of a background job, or the name of that directory.
func (f *face) Usage(_ context.Context, job, dir string) (*backend.UsageReport, error) {
	root, err := f.OutputRoot()
	if err != nil {
		return nil, err
	}
	name := job
	if dir != "" {
		rel, err := filepath.Rel(root, filepath.Clean(dir))
		if err != nil || !filepath.IsLocal(rel) || rel == "." {
			return nil, fmt.Errorf("output_dir %q is outside OutputRoot %q", dir, root)
		}
		name = rel
	} else if j, err := f.jobs.Get(job); err == nil {
		name = f.DirectoryOf(j)
	}
	return f.usage(root, name)
}

// usage reads the report of a directory in the output root. It follows no link out of it.
func (f *face) usage(root, name string) (*backend.UsageReport, error) {
	first, _, _ := strings.Cut(name, "/")
	if !f.Made(first) {
		return nil, backend.ErrNoJob
	}
	outputs, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("report usage: %w", err)
	}
	defer outputs.Close()
	at, err := outputs.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, backend.ErrNoJob
	} else if err != nil {
		return nil, fmt.Errorf("report usage: %w", err)
	}
	defer at.Close()
	r, err := agents.ReadReport(at)
	if err == nil {
		r.Text = agents.ReportText(r)
	}
	return r, err
}

// costOf returns what the agent of a job has used so far; nil: the job runs no agent, or has used nothing.
func (f *face) costOf(j *jobs.Job) *backend.Cost {
	var what struct{ Prompt string }
	if json.Unmarshal(j.Request, &what) != nil || what.Prompt == "" {
		return nil
	}
	root, err := f.OutputRoot()
	if err != nil {
		return nil
	}
	r, err := f.usage(root, f.DirectoryOf(j))
	if err != nil {
		return &backend.Cost{}
	}
	c := &backend.Cost{Own: r.TotalCost, Total: r.TotalCost, PerModel: map[string]backend.Tokens{}}
	for _, child := range r.ByChild {
		c.Own -= child.Cost
	}
	for _, m := range r.ByModel {
		c.PerModel[m.Model] = m.Tokens
	}
	return c
}

// runOf returns the name of a run, given its output directory: that of an agent is the directory "out" in its own.
func runOf(out string) string {
	if name := filepath.Base(out); name != "out" {
		return name
	}
	return filepath.Base(filepath.Dir(out))
}
