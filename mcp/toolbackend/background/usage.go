package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"demesne/agents"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// An agent's directory in the output root has these two: its /out, and the files that only the host writes. A child of
// the agent has child/NAME in each. agents/tree makes them.
const outDir, sidecarDir = "out", agents.SidecarDir

// Usage reports what an agent run and its children used. job is the id of a job, or of a run: the name of its directory.
func (f *Jobs) Usage(_ context.Context, job, dir string) (*agents.UsageReport, error) {
	root, err := f.OutputRoot()
	if err != nil {
		return nil, err
	}
	name, live, err := f.runOf(root, job, dir)
	if err != nil {
		return nil, err
	}
	r, err := f.report(root, name)
	switch {
	case err != nil && live: // it made no request yet
		r = &agents.UsageReport{}
	case err != nil:
		return nil, fmt.Errorf("report usage of %q: %w", cmp.Or(dir, job), err)
	}
	r.Text = agents.ReportText(r)
	return r, nil
}

// runOf returns the path of a run's directory, relative to the root. live means that an agent's job has it. Agents of
// the command line stay hidden from models.
func (f *Jobs) runOf(root, job, dir string) (name string, live bool, err error) {
	if dir != "" {
		if name, err = outputBelow(root, dir); err != nil {
			return "", false, err
		}
		if top, _, _ := strings.Cut(name, "/"); !f.Made(top) {
			return "", false, fmt.Errorf("output_dir %q: no call of this server made it", dir)
		}
		return name, false, nil
	}
	if f.Made(job) {
		return job, false, nil
	}
	j, err := f.store.Get(job)
	if err != nil {
		return "", false, fmt.Errorf("%w: %s", session.ErrNoJob, job)
	}
	return f.DirectoryOf(j), shown(j).Agent, nil
}

// outputBelow returns the path of an output directory relative to the root.
func outputBelow(root, dir string) (string, error) {
	clean := filepath.Clean(dir)
	resolved, _ := filepath.EvalSymlinks(clean)
	for _, at := range []string{clean, resolved} {
		if rest, below := strings.CutPrefix(at, root+"/"); below {
			return rest, nil
		}
	}
	return "", fmt.Errorf("output_dir %q is outside OutputRoot %q", dir, root)
}

// report reads the usage of an agent, or of one of its descendants. It reads the host's own files, since a sandbox could
// write others to its /out.
func (f *Jobs) report(root, name string) (*agents.UsageReport, error) {
	top, rest, _ := strings.Cut(name, "/")
	kind, child, _ := strings.Cut(rest, "/")
	if kind != "" && kind != outDir && kind != sidecarDir {
		return nil, fs.ErrNotExist
	}
	job, err := os.OpenRoot(filepath.Join(root, top))
	if err != nil {
		return nil, err
	}
	defer job.Close()
	dir, err := job.OpenRoot(path.Join(sidecarDir, child))
	if err != nil {
		return nil, errors.New("no agent ran there")
	}
	defer dir.Close()
	return agents.ReadReport(dir, f.agents.Prices()...)
}

// toldAgent adds to t what an agent has answered and used so far. Until its end, Stdout has what it does.
func (f *Jobs) toldAgent(t *session.Job, j *jobs.Job) (err error) {
	root, err := f.OutputRoot()
	if err != nil {
		return err
	}
	name := f.DirectoryOf(j)
	t.Cost = &session.Cost{}
	if r, err := f.report(root, name); err == nil {
		t.Cost = costOf(r)
	}
	o := t.Outcome
	if o.Stderr, err = f.tail(j.ID, "stderr", runner.StderrKept, j.Stderr); err != nil {
		return err
	}
	if !j.Status.Over() {
		o.Stdout = o.Stderr
		return nil
	}
	o.Job = f.ConversationOf(j)
	answer, err := os.ReadFile(filepath.Join(root, name, sidecarDir, answerFile))
	if errors.Is(err, fs.ErrNotExist) { // it did not start
		return nil
	}
	o.Stdout = session.Tail{Text: string(answer), Bytes: int64(len(answer))}
	return err
}

// answerFile has the final answer of an agent, in sidecarDir.
const answerFile = "answer.txt"

// costOf returns the part of the first agent in a report, and the whole.
func costOf(r *agents.UsageReport) *session.Cost {
	c := &session.Cost{Own: r.TotalCost, Total: r.TotalCost, PerModel: map[string]session.Tokens{}}
	for _, child := range r.ByChild {
		c.Own -= child.Cost
	}
	c.Own = max(c.Own, 0)
	for _, m := range r.ByModel {
		c.PerModel[m.Model] = m.Tokens
	}
	return c
}
