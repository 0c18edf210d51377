package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Tail returns the end of a job's stdout or stderr, at most n bytes.
func (s *Store) Tail(id, stream string, n int64) (string, error) {
	path, err := s.path(id, stream+".log")
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
	from := max(st.Size()-n, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, from, st.Size()-from))
	return string(b), err
}
