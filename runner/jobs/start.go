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
)

// FDLock is where a job's process finds the lock it was handed.
const FDLock = 3

// Start writes a job to disk and starts the process that attends to it: argv followed by
// the job's id. When it returns, the job is there for everybody, whatever becomes of us.
func (s *Store) Start(argv []string, what any) (*Job, error) {
	raw, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	id := newID()
	dir := filepath.Join(s.dir, id)
	lock, err := s.lay(dir, raw)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start job: %w", err)
	}
	defer lock.Close()
	if err := launch(append(argv[:len(argv):len(argv)], id), lock, dir); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start job: %w", err)
	}
	return s.Get(id)
}

// room refuses a job that too many are before.
func (s *Store) room() error {
	jobs, err := s.List()
	if err != nil {
		return err
	}
	waiting := 0
	for _, j := range jobs {
		if j.Status == Queued {
			waiting++
		}
	}
	if waiting >= s.Queue {
		return fmt.Errorf("start job: %w (%d)", ErrFull, waiting)
	}
	return nil
}

// lay makes the directory of a job. job.json comes last: without it there is no job.
func (s *Store) lay(dir string, raw json.RawMessage) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB),
		unix.Mkfifo(filepath.Join(dir, "control"), 0o600),
	)
	if err == nil {
		err = writeJSON(dir, "job.json", request{Version: 1, Created: time.Now(), Request: raw})
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// launch starts a process in a session of its own, with the lock. Its last words go to
// DIR/log.
func launch(argv []string, lock *os.File, dir string) error {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(argv[0], argv[1:]...)
	c.Stderr, c.ExtraFiles, c.Dir = log, []*os.File{lock}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	go c.Wait()
	return nil
}

// Wait returns the job when it has ended, or as it is when most is over or ctx ends.
func (s *Store) Wait(ctx context.Context, id string, most time.Duration) (*Job, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		j, err := s.Get(id)
		if err != nil || j.Status.Over() {
			return j, err
		}
		select {
		case <-ctx.Done():
			return j, nil
		case <-time.After(pause):
		}
	}
}

// Cancel ends a job and everything it started. It returns when the job has ended, and may
// be repeated: a job that has ended stays as it is.
func (s *Store) Cancel(ctx context.Context, id string) (*Job, error) {
	j, err := s.Get(id)
	if err != nil || j.Status.Over() {
		return j, err
	}
	path, _ := s.path(id, "control")
	// Its process opens the FIFO first thing; until then nobody reads (ENXIO).
	for pause := time.Millisecond; ; pause = min(pause*2, 50*time.Millisecond) {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == nil {
			unix.Write(fd, []byte("c"))
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
