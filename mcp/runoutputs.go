package mcp

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Output is a file that a run left.
type Output struct {
	Path string // below the run's directory; valid UTF-8
	Size int64
	MIME string // by the name
}

// maxOutputs bounds the outputs of a run in a list.
const maxOutputs = 1000

// Outputs lists the files that a run left in /out, but not its logs. The server's callers must own the run. It fails with
// [os.ErrNotExist].
func (s *Server) Outputs(run string) (list []Output, err error) {
	dir, err := s.outputDir(run)
	if err != nil {
		return nil, err
	}
	for _, o := range s.outputs.files(dir, maxOutputs) {
		list = append(list, Output{o.Name, o.Size, o.MIME})
	}
	return list, nil
}

// OpenOutput opens a file that a run left. It follows no link, and fails with [os.ErrNotExist] for anything but a file.
func (s *Server) OpenOutput(run, name string) (*os.File, error) {
	dir, err := s.outputDir(run)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, os.ErrNotExist
	}
	f, err := s.outputs.open(path.Join(dir, name))
	if errors.Is(err, errNoOutput) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// outputDir returns the directory with the files of a run, relative to the root.
func (s *Server) outputDir(run string) (string, error) {
	if run == "" || run != path.Base(run) || strings.HasPrefix(run, ".") || !s.outputs.has(run) {
		return "", os.ErrNotExist
	}
	return s.outputs.outOf(run), nil
}
