// Package jobs runs commands in the background. A job is a directory, written before its id is returned, and a
// process that attends to it:
//
//	DIR/job-UUID/
//	    job.json      the request; never changes
//	    lock          flock(2)ed by the job's process while it lives; of a cluster's job, until the cluster has it
//	    control       FIFO that the process reads; a write cancels the job
//	    alive         FIFO that the process keeps open; a waiter reads it to its end
//	    started       when the job left the queue; absent before
//	    stdout.log stderr.log
//	    result.json   the outcome; never changes
//	    node          the machine that runs a job of a cluster
//	    attempt       the attempt whose output is here, of a job whose process does not see this directory
//	    room          space reserved for the result, until it is written
//	    log           the process's own stderr; usually empty
//	    items, N/     the list of a job that does the same for each item, and the job of item N: see [List]
//	DIR/slots/N       flock(2)ed by a running job; their number bounds the running jobs
//	DIR/queue         the jobs that wait for a slot, in order of arrival; see package flock
//
// So there is no daemon, and the process that started a job may exit. The directory alone determines the status. A
// job with a result has ended. Without a result but with the lock held, it is queued or running. With neither, its
// process was killed and the job has failed. The starter passes the lock to the process as an open file, so a
// starting job never looks dead.
//
// A job of a cluster's engine has neither a lock, FIFOs nor a place in the queue: its process runs on another machine, which
// sees the same directory. The engine then says whether a job without a result is queued or running: see [Place]. If the
// machine does not see the directory, this side copies the process's output into it: see [Remote].
//
// The package does not know what a job does: the caller passes that function to [Store.Attend].
package jobs

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
)

// ErrUnknown is the error for an id that belongs to no job.
var ErrUnknown = errors.New("job not found")

// ErrFull is the error for a full queue.
var ErrFull = errors.New("too many jobs are queued")

// Status is the state of a job.
type Status string

// The possible statuses. A job whose command exited with a nonzero code still counts as Succeeded, which the tools of MCP
// publish; every other frontend shows [Status.With].
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Over reports whether a job with this status has ended.
func (s Status) Over() bool { return s == Succeeded || s == Failed || s == Cancelled }

// With returns the status that a person is shown, of a job with that result: Failed if the command has ended with another
// exit code than 0. r may be nil.
func (s Status) With(r *runner.Result) Status {
	if s == Succeeded && r != nil && r.ExitCode != 0 {
		return Failed
	}
	return s
}

// Job describes a job.
type Job struct {
	ID       string          `json:"id"`
	Status   Status          `json:"status"`
	Request  json.RawMessage `json:"request"`
	Frontend runner.Frontend `json:"frontend,omitempty"` // of the store that started it
	Traits
	On      string         `json:"on,omitempty"`   // where it runs, such as slurm:PARTITION; empty: on this machine
	Node    string         `json:"node,omitempty"` // the machine of a cluster that runs it, or ran it last
	Created time.Time      `json:"created"`
	Started time.Time      `json:"started,omitzero"`
	Ended   time.Time      `json:"ended,omitzero"`
	Items   int            `json:"items,omitempty"`   // of its list: see [List]
	Message string         `json:"message,omitempty"` // why it failed, or how many jobs are before it
	Result  *runner.Result `json:"result,omitempty"`
	Stdout  int64          `json:"stdout_bytes"` // bytes written, kept or not
	Stderr  int64          `json:"stderr_bytes"`

	submitting bool // its engine does not know it yet
}

// Died reports whether the command had no chance to end by itself: its machine, its sandbox or its memory ended.
func (j *Job) Died() bool {
	return j.Status == Failed || j.Result != nil && (j.Result.Reason == runner.OOM || j.Result.Reason == runner.Lost)
}

// request is the content of job.json.
type request struct {
	Version  int             `json:"version"` // 1
	Frontend runner.Frontend `json:"frontend,omitempty"`
	On       string          `json:"on,omitempty"`
	Items    int             `json:"items,omitempty"`
	Parallel int             `json:"parallel,omitempty"` // items at once of one process
	Created  time.Time       `json:"created"`
	Request  json.RawMessage `json:"request"`
}

// ended is the content of result.json.
type ended struct {
	Status  Status         `json:"status"`
	Ended   time.Time      `json:"ended"`
	Message string         `json:"message,omitempty"`
	Result  *runner.Result `json:"result,omitempty"`
	Stdout  int64          `json:"stdout_bytes"`
	Stderr  int64          `json:"stderr_bytes"`
}

// Store is a directory of jobs, shared by all processes of a user. [Open] sets the default limits.
type Store struct {
	dir string
	// Slots bounds the running jobs. Other jobs wait in order of arrival; Queue bounds their number.
	Slots, Queue int
	// Frontend owns the jobs that this Store starts. Any frontend other than the command line sees only its own jobs:
	// for the others, [Store.Get] and the methods built on it return ErrUnknown.
	Frontend runner.Frontend
	// Admit is called in the process of a job that has a slot, before a later job can have one. nil: it is not called.
	Admit func(what json.RawMessage) error
	// Place returns the engine of a job on another machine, by the job's On. nil: no job runs on another machine.
	Place func(on string) (Place, error)
	// Waits is called by Follow with an engine's reason for which a job still waits. nil: it is not called.
	Waits func(reason string)
}

// DefaultDir returns ~/.demesne/jobs.
func DefaultDir() (string, error) {
	dir, err := fsutil.StateDir("jobs")
	if err != nil {
		return "", fmt.Errorf("find jobs: %w", err)
	}
	return dir, nil
}

// Open opens the store in dir and creates dir if it is missing. The store has 64 slots and a queue of 1000.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "slots"), 0o700); err != nil {
		return nil, fmt.Errorf("open jobs: %w", err)
	}
	return &Store{dir: dir, Slots: 64, Queue: 1000}, nil
}

const prefix = "job-"

// NewID returns a random id, so that two stores never use the same one.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return prefix + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// path returns a path in the directory of a job or an item. It validates the id, which may be untrusted.
func (s *Store) path(id, name string) (string, error) {
	list, _, isItem := itemOf(id)
	rest, ok := strings.CutPrefix(list, prefix)
	if !ok || list != id && !isItem || len(rest) != 36 || strings.Trim(rest, "0123456789abcdef-") != "" {
		return "", ErrUnknown
	}
	return filepath.Join(s.dir, id, name), nil
}

// Get returns a job by its id. It asks the engine of a job on another machine.
func (s *Store) Get(id string) (*Job, error) {
	j, err := s.read(id)
	if err != nil || j.On == "" || j.Status.Over() {
		return j, err
	}
	return s.ask(j)
}

// read returns a job by its directory. One on another machine without a result is queued or running.
func (s *Store) read(id string) (*Job, error) {
	dir, err := s.path(id, "")
	if err != nil {
		return nil, err
	}
	if list, n, isItem := itemOf(id); isItem {
		l, err := s.read(list)
		if err != nil {
			return nil, err
		}
		return s.readItem(l, n)
	}
	var r request
	if err := readJSON(filepath.Join(dir, "job.json"), &r); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrUnknown
		}
		return nil, fmt.Errorf("read job %q: %w", id, err)
	}
	if s.Frontend != runner.FrontendCLI && s.Frontend != r.Frontend {
		return nil, ErrUnknown
	}
	j := &Job{ID: id, Status: Queued, Request: r.Request, Frontend: r.Frontend, On: r.On, Items: r.Items, Created: r.Created}
	_ = json.Unmarshal(r.Request, &j.Traits) // a request of another form has none
	// The order matters: a process writes its result before it releases the lock.
	alive, err := flock.Held(filepath.Join(dir, "lock"))
	if r.On != "" {
		j.submitting, alive, err = alive, true, nil // a job of an earlier version has no lock
	}
	if err != nil {
		return nil, fmt.Errorf("read job %q: %w", id, err)
	}
	done, err := j.fill(dir)
	if err == nil && !done && !alive {
		return s.buryKilled(j, dir)
	}
	return j, err
}

// readItem returns an item of a list, which was read before.
func (s *Store) readItem(l *Job, n int) (*Job, error) {
	if n > l.Items {
		return nil, ErrUnknown
	}
	j := &Job{ID: ItemID(l.ID, n), Status: Queued, Request: l.Request, Frontend: l.Frontend, On: l.On, Created: l.Created}
	dir := filepath.Join(s.dir, j.ID)
	done, err := j.fill(dir)
	if err == nil && !done && l.Status.Over() {
		j.Status, j.Ended, j.Message = Failed, l.Ended, "it has no result: "+l.Message
		if l.Status == Cancelled {
			j.Status, j.Message = Cancelled, l.Message
		}
	}
	return j, err
}

// Items returns the items of a job with a list.
func (s *Store) Items(id string) ([]*Job, error) {
	l, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	all := make([]*Job, l.Items)
	for i := range all {
		if all[i], err = s.readItem(l, i+1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// tally says how the items of a list ended. why is the reason of those without a result, which have died.
func (s *Store) tally(l *Job, why string) (res *runner.Result, done bool) {
	var good, bad, died, cancelled, left int
	running := *l
	running.Status = Running // so that an item without a result is not over
	for n := range l.Items {
		switch j, err := s.readItem(&running, n+1); {
		case err != nil || !j.Status.Over():
			left++
		case j.Status == Cancelled:
			cancelled++
		case j.Died():
			died++
		case j.Result.ExitCode != 0:
			bad++
		default:
			good++
		}
	}
	res = &runner.Result{Reason: runner.Exited, Detail: fmt.Sprintf("%d items: %d succeeded", l.Items, good)}
	for _, part := range []struct {
		n, code int
		word    string
	}{{bad, 1, "failed"}, {died + left, 125, "died"}, {cancelled, 125, "were cancelled"}} {
		if part.n > 0 {
			res.Detail += fmt.Sprintf(", %d %s", part.n, part.word)
			res.ExitCode = part.code
		}
	}
	if left > 0 && why != "" {
		res.Detail += " (" + why + ")"
	}
	return res, left == 0
}

// fill reads what the process of a job wrote into its directory. done: the result is among it.
func (j *Job) fill(dir string) (done bool, err error) {
	if readJSON(filepath.Join(dir, "started"), &j.Started) == nil {
		j.Status = Running
	}
	if j.On != "" {
		readJSON(filepath.Join(dir, "node"), &j.Node)
	}
	var e ended
	err = readJSON(filepath.Join(dir, "result.json"), &e)
	switch {
	case err == nil:
		j.Status, j.Ended, j.Message, j.Result, j.Stdout, j.Stderr = e.Status, e.Ended, e.Message, e.Result, e.Stdout, e.Stderr
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("read job %q: %w", j.ID, err)
	}
	j.Stdout, j.Stderr = sizeOf(filepath.Join(dir, "stdout.log")), sizeOf(filepath.Join(dir, "stderr.log"))
	return false, nil
}

// buryKilled buries a job whose process was killed.
func (s *Store) buryKilled(j *Job, dir string) (*Job, error) {
	why := "the process that ran the job was killed"
	if j.Status == Queued {
		why = "the process for the job was killed before the command started"
	}
	if words := firstWords(filepath.Join(dir, "log")); words != "" {
		why = "the process that ran the job ended: " + words
	}
	return s.bury(j, dir, Failed, why)
}

// bury writes the result of a job that has no process anymore, so that every later reader sees the same end.
func (s *Store) bury(j *Job, dir string, status Status, why string) (*Job, error) {
	return s.buryWith(j, dir, status, why, nil)
}

func (s *Store) buryWith(j *Job, dir string, status Status, why string, res *runner.Result) (*Job, error) {
	e := ended{
		Status: status, Ended: time.Now(), Message: why, Result: res,
		Stdout: sizeOf(filepath.Join(dir, "stdout.log")), Stderr: sizeOf(filepath.Join(dir, "stderr.log")),
	}
	switch err := writeResult(dir, e); {
	case err == nil || errors.Is(err, fs.ErrExist):
		return s.Get(j.ID)
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT): // a later call tries again
		j.Status, j.Ended, j.Message, j.Result, j.Stdout, j.Stderr = e.Status, e.Ended, e.Message, e.Result, e.Stdout, e.Stderr
		return j, nil
	default:
		return nil, err
	}
}

// firstWords returns the first line that a job's process wrote to its own stderr. A killed process wrote nothing. A
// process that ended by itself without a result said why.
func firstWords(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4096))
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(b), "")), "\n")
	return line
}

// List returns all jobs, the oldest first. It skips jobs that cannot be read.
func (s *Store) List() ([]*Job, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var jobs []*Job
	for _, e := range entries {
		if j, err := s.read(e.Name()); err == nil {
			jobs = append(jobs, j)
		}
	}
	s.askAll(jobs)
	slices.SortFunc(jobs, func(a, b *Job) int { return a.Created.Compare(b.Created) })
	return jobs, nil
}

// Prune removes the jobs that ended before t. All jobs of a group stay while one of them has not.
func (s *Store) Prune(t time.Time, group func(*Job) string) (removed int, err error) {
	jobs, err := s.List()
	if err != nil {
		return 0, err
	}
	stays := map[string]bool{}
	for _, j := range jobs {
		if !j.Status.Over() || !j.Ended.Before(t) {
			stays[group(j)] = true
		}
	}
	for _, j := range jobs {
		if !stays[group(j)] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, j.ID)))
			removed++
		}
	}
	return removed, err
}

// Free reports whether a slot is free, so that a new job could start at once.
func (s *Store) Free() bool {
	for n := range s.Slots {
		if taken, _ := flock.Held(filepath.Join(s.dir, "slots", fmt.Sprint(n))); !taken {
			return true
		}
	}
	return false
}

func sizeOf(path string) int64 {
	st, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// maxRecord bounds each record of a job, in bytes.
const maxRecord = 256 << 20

func readJSON(path string, v any) error { return fsutil.ReadRecord(path, v, maxRecord) }

// writeJSON creates dir/name with its whole content. It fails with fs.ErrExist if the name exists.
func writeJSON(dir, name string, v any) error {
	return fsutil.CreateRecord(filepath.Join(dir, name), v, maxRecord)
}
