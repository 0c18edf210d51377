package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Follow copies a job's output to out and errs until the job or ctx ends. It starts n bytes before the current end of
// each stream. It returns the last known state of the job; the end of ctx is not an error. A reader that is too slow gets
// NUL bytes for output that has been discarded.
func (s *Store) Follow(ctx context.Context, id string, n int64, out, errs io.Writer) (*Job, error) {
	var asked time.Time
	if j, err := s.watch(id, &asked); err == nil && j.Items > 0 {
		return s.followItems(ctx, j, n, out, errs)
	}
	done, stop := s.collecting(ctx, id)
	defer stop()
	return s.follow(ctx, id, done, &asked, n, out, errs)
}

// follow is Follow for a job without a list, or an item. done is closed when its output has been collected.
func (s *Store) follow(ctx context.Context, id string, done chan struct{}, asked *time.Time, n int64, out, errs io.Writer) (*Job, error) {
	outs := []*follower{{stream: "stdout", to: out}, {stream: "stderr", to: errs}}
	said := ""
	for i, pause := 0, 5*time.Millisecond; ; i++ {
		// The status is read before the output. So once the job has ended, one copy gets everything.
		j, err := s.watch(id, asked)
		if err != nil {
			return nil, err
		}
		if i > 0 && j.Status == Queued && j.Message != "" && j.Message != said && s.Waits != nil {
			said = j.Message
			s.Waits(said)
		}
		moved := int64(0)
		for _, f := range outs {
			did, err := f.copy(s, id, n)
			if err != nil {
				return j, fmt.Errorf("follow job %q: %w", id, err)
			}
			moved += did
		}
		if j.Status.Over() {
			return j, nil
		}
		if pause = min(pause*3/2, 250*time.Millisecond); moved > 0 {
			pause = 5 * time.Millisecond
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

// follower copies one stream and remembers its position.
type follower struct {
	stream string
	to     io.Writer
	begun  bool
	at     int64
}

func (f *follower) copy(s *Store, id string, n int64) (int64, error) {
	path, err := s.path(id, f.stream+".log")
	if err != nil {
		return 0, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // the job has not begun
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !f.begun {
		f.begun, f.at = true, max(st.Size()-n, 0)
	}
	moved, err := io.Copy(f.to, io.NewSectionReader(file, f.at, st.Size()-f.at))
	f.at += moved
	return moved, err
}

// Tail returns the end of a job's stdout or stderr, at most most bytes.
func (s *Store) Tail(id, stream string, most int64) (string, error) {
	return s.part(id, stream, func(size int64) (from, n int64) { from = max(size-most, 0); return from, size - from })
}

// Head returns the first most bytes of a job's stdout or stderr, but not more than are kept of a long one.
func (s *Store) Head(id, stream string, most int64) (string, error) {
	return s.part(id, stream, func(int64) (from, n int64) { return 0, min(most, headKept) })
}

// File returns the path of the file with a job's stdout or stderr.
func (s *Store) File(id, stream string) (string, error) { return s.path(id, stream+".log") }

// part returns the part of a stream that choose chooses by its size.
func (s *Store) part(id, stream string, choose func(size int64) (from, n int64)) (string, error) {
	path, err := s.File(id, stream)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // the job has not begun
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read output: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read output: %w", err)
	}
	from, n := choose(st.Size())
	b, err := io.ReadAll(io.NewSectionReader(f, from, n))
	return string(b), err
}

// followItems is Follow for a job with a list: the items one after the other.
func (s *Store) followItems(ctx context.Context, l *Job, most int64, out, errs io.Writer) (*Job, error) {
	asked := time.Now()
	_, stop := s.collecting(ctx, l.ID)
	defer stop()
	for n := 1; n <= l.Items && ctx.Err() == nil; n++ {
		if _, err := s.follow(ctx, ItemID(l.ID, n), nil, &asked, most, out, errs); err != nil {
			return l, err
		}
	}
	return s.waitOver(ctx, l.ID)
}
