package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
)

// Place is the engine of a cluster. It starts a job's process on one of its machines, which must see the directory of jobs
// and demesne's programs at the same paths, unless the Place is a [Remote]. A Place knows a job by the job's own id, so
// nothing must be remembered between a request to the engine and its answer.
type Place interface {
	// Submit asks the engine for one process. It returns before the process starts.
	Submit(ctx context.Context, p Process) error
	// States asks for several jobs at once. A job that the engine does not know is absent from the answer.
	States(ctx context.Context, ids []string) (map[string]State, error)
	// Cancel ends a job. It returns before the process has ended.
	Cancel(ctx context.Context, id string) error
}

// Process is the process of a job on another machine.
type Process struct {
	ID      string          `json:"id"`
	Argv    []string        `json:"-"`
	Log     string          `json:"-"`       // path of a file for its stderr
	Needs   Needs           `json:"needs"`   // resources that the engine sets aside
	Shared  []string        `json:"-"`       // names of variables that it gets from this environment if it sees the same files
	Env     []string        `json:"env"`     // names of other variables that it gets
	Request json.RawMessage `json:"request"` // what the job does, for a Remote
	// List has its items. If it is not empty, the engine starts several processes, and adds the two numbers of a Share to the
	// Argv of each. The process of a Remote calls [AttendRemoteShare].
	List List `json:"list,omitzero"`
}

// Needs are resources of one job. A zero field leaves the engine its default.
type Needs struct {
	Memory int64         `json:"memory"` // bytes
	CPUs   float64       `json:"cpus"`   // processors
	Time   time.Duration `json:"time"`   // until the engine ends the job
}

// Overhead is memory for demesne's own processes beside a sandbox, in bytes.
const Overhead = 128 << 20

// State is what an engine knows about a job.
type State struct {
	Status Status `json:"status"` // Queued or Running while it may still produce a result, otherwise Failed or Cancelled
	Reason string `json:"reason"` // in the engine's words, may be empty
	Node   string `json:"node"`   // may be empty
}

// askPause is the time between two questions to an engine. The directory is looked at more often.
const askPause = 3 * time.Second

// Bounds of the time until an engine answers. The request for a job may have a long list.
const (
	askTimeout    = 30 * time.Second
	submitTimeout = 2 * time.Minute
)

// answerIn bounds the time of a request to an engine.
func answerIn(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %.0f seconds", most.Seconds()))
}

// errNoPlace is the error for a job of an engine that this program does not have.
var errNoPlace = errors.New("no such cluster")

func (s *Store) place(on string) (Place, error) {
	if s.Place == nil {
		return nil, fmt.Errorf("%q: %w", on, errNoPlace)
	}
	return s.Place(on)
}

// StartOn writes a job to disk and submits its process to the engine of a cluster. The process is p.Argv followed by the
// job's id. p.ID and p.Log are set here.
func (s *Store) StartOn(ctx context.Context, on string, p Process, what any) (*Job, error) {
	place, err := s.place(on)
	if err != nil {
		return nil, err
	}
	raw, err := stored(what)
	if err != nil {
		return nil, err
	}
	p.ID = NewID()
	dir := filepath.Join(s.dir, p.ID)
	p.Log = filepath.Join(dir, "log")
	p.Argv = append(p.Argv[:len(p.Argv):len(p.Argv)], p.ID)
	p.Request = raw
	err = os.Mkdir(dir, 0o700)
	var lock *os.File
	if err == nil {
		lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err == nil {
		defer lock.Close()
		flock.Try(lock, flock.Exclusive) // fails only on a file system without locks
		here := p.List
		here.Parallel = 1 // the engine starts as many processes as the list allows
		err = errors.Join(reserve(dir), allocate(p.Log, unix.FALLOC_FL_KEEP_SIZE, wordsSize), s.write(dir, request{On: on, Request: raw}, here))
	}
	if err == nil {
		ctx, cancel := answerIn(ctx, submitTimeout)
		defer cancel()
		if err = place.Submit(ctx, p); err != nil && ctx.Err() != nil { // the engine may have the job all the same
			ctx, cancel := answerIn(context.WithoutCancel(ctx), askTimeout)
			defer cancel()
			place.Cancel(ctx, p.ID)
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start job: %w", err)
	}
	return s.read(p.ID)
}

// ask asks the engine of a job that has no result. If the engine knows no process for it either, the job has failed. The engine may
// have got the job after its answer, so it is not asked about a job that was being submitted before.
func (s *Store) ask(j *Job) (*Job, error) {
	place, err := s.place(j.On)
	if err != nil {
		return nil, err
	}
	l := j
	list, _, isItem := itemOf(j.ID)
	if isItem {
		if l, err = s.read(list); err != nil || l.Status.Over() {
			return j, err
		}
	}
	if l.submitting {
		return j, nil
	}
	ctx, cancel := answerIn(context.Background(), askTimeout)
	defer cancel()
	states, err := place.States(ctx, []string{list})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", j.On, err)
	}
	if l, err = s.settle(l, place, states); !isItem {
		return l, err
	}
	if err == nil && l.Status.Over() {
		return s.read(j.ID)
	}
	return j, err
}

// askAll asks each engine once, about all its jobs. Jobs of an engine that does not answer say so.
func (s *Store) askAll(jobs []*Job) {
	open := map[string][]string{}
	for _, j := range jobs {
		if j.On != "" && !j.Status.Over() && !j.submitting {
			open[j.On] = append(open[j.On], j.ID)
		}
	}
	for on, ids := range open {
		ctx, cancel := answerIn(context.Background(), askTimeout)
		place, err := s.place(on)
		var states map[string]State
		if err == nil {
			states, err = place.States(ctx, ids)
		}
		cancel()
		for i, j := range jobs {
			if j.On != on || j.Status.Over() || j.submitting {
				continue
			}
			now, failed := j, err
			if failed == nil {
				now, failed = s.settle(j, place, states)
			}
			if failed != nil {
				j.Message = failed.Error()
				continue
			}
			jobs[i] = now
		}
	}
}

// settle merges the answer of an engine into a job. An engine that forgot a job, or ended it, buries it: the process may
// have written its result meanwhile, which then stays.
func (s *Store) settle(j *Job, place Place, states map[string]State) (*Job, error) {
	dir := filepath.Join(s.dir, j.ID)
	state, known := states[j.ID]
	r, remote := place.(Remote)
	_, done := s.tally(j, "")
	if j.Items > 0 && done {
		state.Status = Failed // its processes have nothing left to do
	}
	if remote && known {
		if state.Node != "" {
			node, _ := json.Marshal(state.Node)
			fsutil.WriteFile(filepath.Join(dir, "node"), node, 0o600)
		}
		if state.Status.Over() {
			ctx, cancel := answerIn(context.Background(), askTimeout)
			defer cancel()
			if j.Items == 0 || !done {
				if err := s.collect(ctx, r, j.ID, false); err != nil {
					return nil, fmt.Errorf("read output from %s: %w", j.On, err)
				}
			}
			defer place.Cancel(ctx, j.ID) // which removes what is left there
		}
	}
	var by runner.Frontend
	switch {
	case j.Items > 0 && !(known && !state.Status.Over()) && readJSON(filepath.Join(dir, cancelFile), &by) != nil:
		why := strings.TrimSuffix(fmt.Sprintf("%s ended it: %s", j.On, state.Reason), ": ")
		if words := firstWords(filepath.Join(dir, "log")); words != "" {
			why += ": " + words
		}
		res, _ := s.tally(j, why)
		return s.buryWith(j, dir, Succeeded, res.Detail, res)
	case known && state.Status == Queued && readJSON(filepath.Join(dir, cancelFile), &by) == nil: // an engine may end it only at its start
		return s.bury(j, dir, Cancelled, cancelledBy(by).Error())
	case known && !state.Status.Over():
		if j.Status, j.Message = state.Status, state.Reason; state.Node != "" || state.Status == Queued { // otherwise the process's own word
			j.Node = state.Node
		}
		return j, nil
	case readJSON(filepath.Join(dir, cancelFile), &by) == nil: // the process had no time to say so
		return s.bury(j, dir, Cancelled, cancelledBy(by).Error())
	case !known:
		return s.bury(j, dir, Failed, j.On+" does not know the job anymore, and there is no result")
	case state.Status == Cancelled:
		return s.bury(j, dir, Cancelled, fmt.Sprintf("%s ended the job: %s", j.On, state.Reason))
	}
	why := fmt.Sprintf("%s ended the job: %s", j.On, state.Reason)
	if words := firstWords(filepath.Join(dir, "log")); words != "" {
		why += ": " + words
	}
	return s.bury(j, dir, Failed, why)
}

// watch returns a job as Get does, but asks its engine less often than it is called. asked is the time of the last question.
func (s *Store) watch(id string, asked *time.Time) (*Job, error) {
	j, err := s.read(id)
	if err != nil || j.On == "" || j.Status.Over() || time.Since(*asked) < askPause {
		return j, err
	}
	*asked = time.Now()
	return s.ask(j)
}

// waitPlaced waits for a job on another machine.
func (s *Store) waitPlaced(ctx context.Context, id string) (*Job, error) {
	var asked time.Time
	done, stop := s.collecting(ctx, id)
	defer stop()
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 500*time.Millisecond) {
		j, err := s.watch(id, &asked)
		if err != nil || j.Status.Over() {
			return j, err
		}
		select {
		case <-ctx.Done():
			return j, nil
		case <-done:
			done = nil
		case <-time.After(pause):
		}
	}
}

// cancelPlaced ends a job on another machine. The file tells its process, which gets a signal, that this is not the end
// of its time.
func (s *Store) cancelPlaced(ctx context.Context, j *Job) (*Job, error) {
	place, err := s.place(j.On)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(s.dir, j.ID), cancelFile, s.Frontend); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
	}
	fetching, stop := answerIn(ctx, askTimeout)
	s.Fetch(fetching, j.ID) // a Remote forgets it; an error must not keep the job
	stop()
	cancelling, stop := answerIn(ctx, askTimeout)
	defer stop()
	if err := place.Cancel(cancelling, j.ID); err != nil {
		return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.waitPlaced(ctx, j.ID)
}

func cancelledBy(f runner.Frontend) error { return fmt.Errorf("%w by a call of %s", errCancelled, f) }

// cancelFile in the directory of an item, or of a job on another machine, has the frontend that cancelled it.
const cancelFile = "cancel"

// untilEnded returns a context that ends when the engine ends the process of a job. The cause says whether the user cancelled it.
func untilEnded(ctx context.Context, dir string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	cancelled := func() {
		var by runner.Frontend
		if readJSON(filepath.Join(dir, cancelFile), &by) == nil {
			cancel(cancelledBy(by))
		}
	}
	cancelled() // while it waited in the engine's queue
	context.AfterFunc(ended, func() {
		cancelled()
		cancel(errors.New("the engine ended the process"))
	})
	return ctx, stop
}

// signalPause is the most time between two processes of a job that get an engine's signal.
const signalPause = 2 * time.Second

// errSuperseded is the cause with which the context of an attempt ends that an engine has replaced.
var errSuperseded = errors.New("the engine has begun the job again elsewhere")

// superseded reports whether another process wrote when it began.
func superseded(dir string, began []byte) bool {
	now, err := os.ReadFile(filepath.Join(dir, "started"))
	return err == nil && !bytes.Equal(now, began)
}

// untilSuperseded returns a context that ends when another process begins the job. The network may part a machine from its engine,
// but not from its files; the engine then begins the job elsewhere.
func untilSuperseded(ctx context.Context, dir string, began []byte) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	look := time.NewTicker(cancelPause)
	go func() {
		defer look.Stop()
		for ctx.Err() == nil {
			if superseded(dir, began) {
				cancel(errSuperseded)
			}
			select {
			case <-ctx.Done():
			case <-look.C:
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// signalled reports whether the signals of an engine, SIGTERM and SIGKILL, may have ended the command of a job or its runner. A shell
// returns 128 plus the number of a signal that ended its last command.
func signalled(res *runner.Result) bool {
	switch res.Reason {
	case runner.Lost:
		return true
	case runner.Signaled, runner.Exited:
		return res.ExitCode == 128+int(unix.SIGTERM) || res.ExitCode == 128+int(unix.SIGKILL)
	}
	return false
}

// attempt runs a job without a lock, which a process may have begun before: an item, or a job on another machine. If the
// engine ends the process, there is no result unless the user cancelled the job: the engine may start the process again elsewhere,
// or will say why it ended.
func (s *Store) attempt(ctx context.Context, dir string, keep int64, what json.RawMessage, run Run) error {
	if fsutil.Exists(filepath.Join(dir, "result.json")) { // the engine did not see the end
		return os.ErrExist
	}
	host, _ := os.Hostname()
	began, _ := json.Marshal(time.Now())
	node, _ := json.Marshal(host)
	err := errors.Join(fsutil.WriteFile(filepath.Join(dir, "node"), node, 0o600), fsutil.WriteFile(filepath.Join(dir, "started"), began, 0o600))
	out, err1 := openLog(filepath.Join(dir, "stdout.log"), os.O_TRUNC, keep)
	errs, err2 := openLog(filepath.Join(dir, "stderr.log"), os.O_TRUNC, keep)
	if err := errors.Join(err, err1, err2); err != nil {
		return err
	}
	ctx, stop := untilSuperseded(ctx, dir, began)
	defer stop()
	var res *runner.Result
	if err = context.Cause(ctx); err == nil {
		res, err = run(ctx, what, out, errs)
	}
	if superseded(dir, began) {
		return errSuperseded
	}
	e := ended{Result: res, Ended: time.Now()}
	if err == nil && signalled(res) {
		select { // an engine signals all processes of a job, and the runner or the command may get it first
		case <-ctx.Done():
		case <-time.After(signalPause):
		}
	}
	switch cause := context.Cause(ctx); {
	case cause == nil:
		e.Status, e.Message = Outcome(res, err)
	case errors.Is(cause, errCancelled):
		e.Status, e.Message = Cancelled, cause.Error()
	default:
		return cause
	}
	return finish(dir, e, out, errs)
}
