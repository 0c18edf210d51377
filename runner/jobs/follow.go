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

// Follow writes what a job has written, and what it goes on to write, until it has ended or ctx does; it
// begins n bytes before the end of each stream. The job is as it was at last; ctx's end is no error. Who is so
// slow that a part is gone when it is to be read gets NUL bytes for it.
func (s *Store) Follow(ctx context.Context, id string, n int64, out, errs io.Writer) (*Job, error) {
	outs := []*follower{{stream: "stdout", to: out}, {stream: "stderr", to: errs}}
	for i, pause := 0, 5*time.Millisecond; ; i++ {
		// Asked before what there is is read: of a job that was over by then, that is all.
		j, err := s.Get(id)
		if err != nil {
			return nil, err
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
		case <-time.After(pause):
		}
	}
}

// follower is one stream and how far it has been read.
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
	if errors.Is(err, fs.ErrNotExist) { // it has not begun
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
