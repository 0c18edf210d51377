package background

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"demesne/agents"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// Log copies the last part of a job's stdout or stderr to out, and what is added to it until the job or ctx ends.
func (f *Jobs) Log(ctx context.Context, id, stream string, out io.Writer) error {
	stdout, stderr := out, io.Discard
	if stream == "stderr" {
		stdout, stderr = io.Discard, out
	}
	_, err := f.store.Follow(ctx, id, runner.JobKept, stdout, stderr)
	if errors.Is(err, jobs.ErrUnknown) {
		return session.ErrNoJob
	}
	return err
}

// ModelRequest is one request of an agent to its model: a line of usage.jsonl.
type ModelRequest struct {
	Time  time.Time `json:"ts"`
	Model string    `json:"model"`
	session.Tokens
}

// maxTrace bounds a trace: the events, and the requests. traceRead bounds what is read of each file, from its end,
// and maxText one text.
const maxTrace, traceRead, maxText = 2000, 32 << 20, 4096

// Trace returns what the agent of a job did so far: the newest events and requests. Their texts come from the agent.
func (f *Jobs) Trace(_ context.Context, id string) (events []agents.Event, requests []ModelRequest, err error) {
	j, err := f.store.Get(id)
	if errors.Is(err, jobs.ErrUnknown) {
		return nil, nil, session.ErrNoJob
	}
	if err != nil {
		return nil, nil, err
	}
	var r agents.Request
	if json.Unmarshal(j.Request, &r) != nil || r.Prompt == "" {
		return nil, nil, fmt.Errorf("%w: %s is not an agent", session.ErrNoJob, id)
	}
	root, err := f.OutputRoot()
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(root, f.DirectoryOf(j), sidecarDir)
	if a, err := f.agents.In(r.Image).Choose(r.Tool(), r.Model); err == nil {
		t := agents.NewTranscript(a.Format(), func(e agents.Event) {
			if e.Text = text.Shorten(e.Text, maxText); len(events) == maxTrace {
				events = append(events[:0], events[1:]...)
			}
			events = append(events, e)
		})
		t.Kept = maxText
		readTail(filepath.Join(dir, "transcript.jsonl"), func(r io.Reader) { io.Copy(t, r) })
	}
	readTail(filepath.Join(dir, "usage.jsonl"), func(r io.Reader) {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var one ModelRequest
			if json.Unmarshal(lines.Bytes(), &one) != nil {
				continue
			}
			if len(requests) == maxTrace {
				requests = append(requests[:0], requests[1:]...)
			}
			requests = append(requests, one)
		}
	})
	return events, requests, nil
}

// readTail calls f with the last part of a file, which may begin within a line. The file is the host's own: no sandbox can
// reach it.
func readTail(path string, f func(io.Reader)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	if st, err := file.Stat(); err == nil {
		f(io.NewSectionReader(file, max(st.Size()-traceRead, 0), traceRead))
	}
}
