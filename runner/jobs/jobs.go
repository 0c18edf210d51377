// Package jobs keeps commands that run in the background. A job is a directory, written
// before anybody is told of it, and a process of its own that looks after it:
//
//	DIR/job-UUID/
//	    job.json      what was asked; never changes
//	    lock          flock(2)ed by the job's process while that lives
//	    control       FIFO that the process reads: to write to it is to cancel
//	    alive         FIFO that the process has open: whoever waits for it reads to the end
//	    started       when the job left the queue; not there before
//	    stdout.log stderr.log
//	    result.json   how it ended; never changes
//	    room          space for it, until then
//	    log           what the process said beside that, as its last words; mostly empty
//	DIR/slots/N       flock(2)ed by a job that runs: their number bounds how many do
//	DIR/queue         those who wait for a slot, in the order they came; see package turns
//
// So there is no daemon, and whoever started the job may end. What a job is can always be
// said from its directory: with a result it has ended; without one, and with the lock
// held, it is queued or running; without either its process was killed, and the job has
// failed. The lock passes from the starter to the process as an open file, so there is no
// moment at which a job that is being started looks dead.
//
// The package does not know what a job does: that is the function given to [Store.Attend].
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

	"demesne/runner"
)

// ErrUnknown says that an id is no job's.
var ErrUnknown = errors.New("job not found")

// ErrFull says that too many jobs wait already.
var ErrFull = errors.New("too many jobs are queued")

// Status of a job.
type Status string

// The statuses there are. A job whose command ended with another code than 0 succeeded in
// running it.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Over says whether a job with this status has ended.
func (s Status) Over() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Job is what there is to know of one.
type Job struct {
	ID      string          `json:"id"`
	Status  Status          `json:"status"`
	Request json.RawMessage `json:"request"`
	Door    runner.Door     `json:"door,omitempty"` // of the store that started it
	Created time.Time       `json:"created"`
	Started time.Time       `json:"started,omitzero"`
	Ended   time.Time       `json:"ended,omitzero"`
	Message string          `json:"message,omitempty"` // why it failed, how many are before it
	Result  *runner.Result  `json:"result,omitempty"`
	Stdout  int64           `json:"stdout_bytes"` // written, kept or not
	Stderr  int64           `json:"stderr_bytes"`
}

// request is job.json.
type request struct {
	Version int             `json:"version"` // 1
	Door    runner.Door     `json:"door,omitempty"`
	Created time.Time       `json:"created"`
	Request json.RawMessage `json:"request"`
}

// ended is result.json.
type ended struct {
	Status  Status         `json:"status"`
	Ended   time.Time      `json:"ended"`
	Message string         `json:"message,omitempty"`
	Result  *runner.Result `json:"result,omitempty"`
	Stdout  int64          `json:"stdout_bytes"`
	Stderr  int64          `json:"stderr_bytes"`
}

// Store is a directory of jobs, shared by all processes of a user. The zero Limits are
// those of [Open].
type Store struct {
	dir string
	// Slots is how many jobs run at once; others wait in the order they came. Queue is how
	// many may wait.
	Slots, Queue int
	// Door is whose jobs are started here. A door other than the command line has no others: [Store.Get] and what
	// stands on it do not know them.
	Door runner.Door
}

// DefaultDir is ~/.demesne/jobs.
func DefaultDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find jobs: %w", err)
	}
	return filepath.Join(home, ".demesne", "jobs"), nil
}

// Open makes dir if it is missing. It has 64 slots and a queue of 1000.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "slots"), 0o700); err != nil {
		return nil, fmt.Errorf("open jobs: %w", err)
	}
	return &Store{dir: dir, Slots: 64, Queue: 1000}, nil
}

const prefix = "job-"

// newID is random, for it is also how two stores never mean the same job.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return prefix + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// path is the directory of a job, whose id may come from anywhere.
func (s *Store) path(id, name string) (string, error) {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != 36 || strings.Trim(rest, "0123456789abcdef-") != "" {
		return "", ErrUnknown
	}
	return filepath.Join(s.dir, id, name), nil
}

// Get tells of a job.
func (s *Store) Get(id string) (*Job, error) {
	dir, err := s.path(id, "")
	if err != nil {
		return nil, err
	}
	var r request
	if err := readJSON(filepath.Join(dir, "job.json"), &r); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrUnknown
		}
		return nil, fmt.Errorf("read job %q: %w", id, err)
	}
	if s.Door != runner.DoorCLI && s.Door != r.Door {
		return nil, ErrUnknown
	}
	j := &Job{ID: id, Status: Queued, Request: r.Request, Door: r.Door, Created: r.Created}
	if readJSON(filepath.Join(dir, "started"), &j.Started) == nil {
		j.Status = Running
	}
	// The order counts: a process writes its result before it gives up the lock.
	alive, err := held(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("read job %q: %w", id, err)
	}
	var e ended
	err = readJSON(filepath.Join(dir, "result.json"), &e)
	switch {
	case err == nil:
		j.Status, j.Ended, j.Message, j.Result, j.Stdout, j.Stderr = e.Status, e.Ended, e.Message, e.Result, e.Stdout, e.Stderr
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read job %q: %w", id, err)
	case !alive:
		return s.bury(j, dir)
	default:
		j.Stdout, j.Stderr = sizeOf(filepath.Join(dir, "stdout.log")), sizeOf(filepath.Join(dir, "stderr.log"))
	}
	return j, nil
}

// bury writes the result of a job whose process was killed, so that it ended once and for
// all who ask.
func (s *Store) bury(j *Job, dir string) (*Job, error) {
	e := ended{
		Status: Failed, Ended: time.Now(), Message: "the process that ran the job was killed",
		Stdout: sizeOf(filepath.Join(dir, "stdout.log")), Stderr: sizeOf(filepath.Join(dir, "stderr.log")),
	}
	if j.Status == Queued {
		e.Message = "the process that was to run the job was killed before it began"
	}
	if words := firstWords(filepath.Join(dir, "log")); words != "" {
		e.Message = "the process that ran the job ended: " + words
	}
	switch err := writeResult(dir, e); {
	case err == nil || errors.Is(err, fs.ErrExist):
		return s.Get(j.ID)
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT): // who asks later tries again
		j.Status, j.Ended, j.Message, j.Stdout, j.Stderr = e.Status, e.Ended, e.Message, e.Stdout, e.Stderr
		return j, nil
	default:
		return nil, err
	}
}

// firstWords is the first line that a job's process wrote to stderr. One that was killed
// wrote nothing; one that ended by itself, without a result, said why.
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

// List tells of all jobs, the oldest first. One that cannot be read is left out.
func (s *Store) List() ([]*Job, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var jobs []*Job
	for _, e := range entries {
		if j, err := s.Get(e.Name()); err == nil {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *Job) int { return a.Created.Compare(b.Created) })
	return jobs, nil
}

// Prune removes jobs that ended before t.
func (s *Store) Prune(t time.Time) (removed int, err error) {
	jobs, err := s.List()
	if err != nil {
		return 0, err
	}
	for _, j := range jobs {
		if j.Status.Over() && j.Ended.Before(t) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, j.ID)))
			removed++
		}
	}
	return removed, err
}

// Free says whether a job could run now: there is a slot that no other has.
func (s *Store) Free() bool {
	for n := range s.Slots {
		if taken, _ := held(filepath.Join(s.dir, "slots", fmt.Sprint(n))); !taken {
			return true
		}
	}
	return false
}

// held says whether somebody has the lock at path.
func held(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func sizeOf(path string) int64 {
	st, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// writeJSON makes dir/name with its whole content, or fails with fs.ErrExist: link(2)
// does not replace.
func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+name)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), filepath.Join(dir, name))
}
