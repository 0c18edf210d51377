package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"demesne/runner/jobs"
)

// ErrUnknown reports that no run has the given id.
var ErrUnknown = errors.New("run not found")

// Store is a directory of runs, shared by the server and the processes that execute runs. Its methods may be called
// concurrently.
type Store struct {
	dir    string
	jobs   *jobs.Store
	attend []string // the command that calls Attend; the run's job is appended

	mu    sync.Mutex
	feeds map[string]*feed // of runs that go on, by id

	// Observe is called with each event of the runs that go on, in their order. It is set before the first run. nil: no
	// function is called.
	Observe func(Request, Event)
}

// Open opens the store in dir, which it makes. attend is the command that executes a run; at most slots run at once, and 0
// means 64.
func Open(dir string, slots int, attend []string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, latestDir), 0o700); err != nil {
		return nil, fmt.Errorf("open runs: %w", err)
	}
	all, err := jobs.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open runs: %w", err)
	}
	if slots > 0 {
		all.Slots = slots
	}
	return &Store{dir: dir, jobs: all, attend: attend, feeds: map[string]*feed{}}, nil
}

// A run has the id of its job, with another prefix.
const runPrefix, jobPrefix = "run-", "job-"

func idOf(job string) string { return runPrefix + strings.TrimPrefix(job, jobPrefix) }

// jobOf returns the job of a run. What is not an id names no job either.
func jobOf(run string) string {
	rest, ok := strings.CutPrefix(run, runPrefix)
	if !ok {
		return ""
	}
	return jobPrefix + rest
}

// job returns the job and the request of a run.
func (s *Store) job(id string, sees func(namespace string) bool) (*jobs.Job, *Request, error) {
	j, err := s.jobs.Get(jobOf(id))
	if errors.Is(err, jobs.ErrUnknown) {
		return nil, nil, ErrUnknown
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read run: %w", err)
	}
	var r Request
	if err := json.Unmarshal(j.Request, &r); err != nil {
		return nil, nil, fmt.Errorf("read run %q: %w", id, err)
	}
	if !sees(r.Namespace) {
		return nil, nil, ErrUnknown
	}
	return j, &r, nil
}

// maxLog bounds the log of a run, in bytes. Output that does not fit is left out.
const maxLog = 32 << 20

// maxLine bounds one line of the log, in bytes: the largest has a command of a request.
const maxLine = 16 << 20

// lines calls f with each line of a run's log from an offset on.
func (s *Store) lines(job string, from int64, f func(line []byte)) error {
	path, err := s.jobs.File(job, "stdout")
	if err != nil {
		return ErrUnknown
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) { // it is queued
		return nil
	}
	if err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	defer file.Close()
	if _, err := readLines(io.NewSectionReader(file, from, 2*maxLog), f); err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	return nil
}
