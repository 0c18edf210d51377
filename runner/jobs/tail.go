package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

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
