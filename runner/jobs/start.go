package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
)

// Descriptors that a job's process inherits: its lock, and its place in the queue.
const (
	fdLock = 3
	fdTurn = 4
)

// Start writes a job to disk and starts its process: argv followed by the job's id. When Start returns, the job is
// visible to all processes and outlives the caller.
func (s *Store) Start(argv []string, what any) (*Job, error) {
	return s.StartList(argv, what, List{})
}

// StartList is Start for a job that may have a list.
func (s *Store) StartList(argv []string, what any, l List) (*Job, error) {
	raw, err := stored(what)
	if err != nil {
		return nil, err
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	id := NewID()
	dir := filepath.Join(s.dir, id)
	if err := s.begin(argv, id, dir, raw, l); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start job: %w", err)
	}
	return s.Get(id)
}

// begin creates the job's directory, its place in the queue and its process.
func (s *Store) begin(argv []string, id, dir string, raw json.RawMessage, l List) error {
	lock, err := s.lay(dir, raw, l)
	if err != nil {
		return err
	}
	defer lock.Close()
	turn, err := flock.JoinQueue(s.queue(), queueName, id)
	if err != nil {
		return err
	}
	defer turn.File().Close() // the process has its own copy
	if err := launch(append(argv[:len(argv):len(argv)], id), dir, lock, turn.File()); err != nil {
		turn.Leave()
		return err
	}
	return nil
}

// queue returns the directory of the jobs that wait for a slot.
func (s *Store) queue() string { return filepath.Join(s.dir, "queue") }

const queueName = "jobs"

// room returns ErrFull if the queue is full.
func (s *Store) room() error {
	waiting, err := flock.CountTurns(s.queue(), queueName)
	if err != nil {
		return fmt.Errorf("start job: %w", err)
	}
	if waiting >= s.Queue {
		return fmt.Errorf("start job: %w (%d)", ErrFull, waiting)
	}
	return nil
}

// lay creates the directory of a job and returns its lock. It writes job.json last: a directory without it is not a job.
func (s *Store) lay(dir string, raw json.RawMessage, l List) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		flock.Try(lock, flock.Exclusive),
		unix.Mkfifo(filepath.Join(dir, "control"), 0o600),
		unix.Mkfifo(filepath.Join(dir, "alive"), 0o600),
	)
	if err == nil {
		err = reserve(dir)
	}
	if err == nil {
		err = s.write(dir, request{Request: raw}, l)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// write writes the request of a job, after its list.
func (s *Store) write(dir string, r request, l List) error {
	r.Version, r.Frontend, r.Created, r.Items, r.Parallel = 1, s.Frontend, time.Now(), len(l.Items), l.Parallel
	if err := l.write(dir); err != nil {
		return err
	}
	return writeJSON(dir, "job.json", r)
}

// launch starts a process in its own session, with files as descriptors from fdLock on. The process's stderr goes to
// DIR/log.
func launch(argv []string, dir string, files ...*os.File) error {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(argv[0], argv[1:]...)
	c.Stderr, c.ExtraFiles, c.Dir = log, files, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	go c.Wait()
	return nil
}

// Begun returns when a job no longer waits for its turn: it runs, or has ended. It returns an error when ctx ends.
func (s *Store) Begun(ctx context.Context, id string) error {
	return flock.Left(ctx, s.queue(), queueName, id)
}

// Wait returns the job once it has ended. It returns the job as it is when the time most has passed or ctx ends.
func (s *Store) Wait(ctx context.Context, id string, most time.Duration) (*Job, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return s.waitOver(ctx, id)
}

func (s *Store) waitOver(ctx context.Context, id string) (*Job, error) {
	if j, err := s.read(id); err != nil || j.On != "" {
		if err != nil {
			return nil, err
		}
		return s.waitPlaced(ctx, id)
	}
	return s.waitHere(ctx, id)
}

// waitHere waits for a job of this machine.
func (s *Store) waitHere(ctx context.Context, id string) (*Job, error) {
	for pause := time.Millisecond; ; pause = min(pause*2, 250*time.Millisecond) {
		j, err := s.Get(id)
		if err != nil || j.Status.Over() {
			return j, err
		}
		// Gone blocks while the job's process lives. It returns at once if the process has not opened the FIFO yet,
		// or ended without a result.
		began := time.Now()
		flock.Gone(ctx, filepath.Join(s.dir, id, "alive"))
		if time.Since(began) > pause && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return j, nil
		case <-time.After(pause):
		}
	}
}

// Cancel ends a job and all processes it started. It returns when the job has ended, or after a minute at most. It
// does nothing to a job that has already ended.
func (s *Store) Cancel(ctx context.Context, id string) (*Job, error) {
	j, err := s.Get(id)
	if err != nil || j.Status.Over() {
		return j, err
	}
	switch _, _, isItem := itemOf(id); {
	case isItem:
		return s.cancelItem(ctx, j)
	case j.On != "":
		return s.cancelPlaced(ctx, j)
	}
	path, _ := s.path(id, "control")
	// The process opens the FIFO first. Until then the FIFO has no reader (ENXIO).
	for pause := time.Millisecond; ; pause = min(pause*2, 50*time.Millisecond) {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == nil {
			unix.Write(fd, []byte("c"+string(s.Frontend)))
			unix.Close(fd)
			break
		}
		if !errors.Is(err, unix.ENXIO) {
			return nil, fmt.Errorf("cancel job %q: %w", id, err)
		}
		if j, err = s.Get(id); err != nil || j.Status.Over() {
			return j, err
		}
		select {
		case <-ctx.Done():
			return j, ctx.Err()
		case <-time.After(pause):
		}
	}
	return s.Wait(ctx, id, time.Minute)
}

// cancelItem ends an item. One that has not begun gets its result here.
func (s *Store) cancelItem(ctx context.Context, j *Job) (*Job, error) {
	dir := filepath.Join(s.dir, j.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
	}
	if err := writeJSON(dir, cancelFile, s.Frontend); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
	}
	r := s.remote(j.ID)
	if r != nil {
		asking, stop := answerIn(ctx, askTimeout)
		defer stop()
		if err := r.Cancel(asking, j.ID); err != nil {
			return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
		}
	}
	if r != nil || j.Started.IsZero() {
		return s.bury(j, dir, Cancelled, cancelledBy(s.Frontend).Error())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.waitPlaced(ctx, j.ID)
}
