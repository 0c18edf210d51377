package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// markDir holds an empty file for each output directory that a Service made, with the same name. Other front
// ends keep their outputs in the same root, and a model must not read those. No sandbox can write to markDir.
const markDir = ".mcp"

// mark records that a Service made an output directory.
func mark(root, name string) error {
	dir := filepath.Join(root, markDir)
	err := os.MkdirAll(dir, ownerOnly)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("mark output directory: %w", err)
	}
	return nil
}

func unmark(root, name string) { os.Remove(filepath.Join(root, markDir, name)) }

// Made reports whether the output directory of that name was made by this or another Service.
func (d *Service) Made(name string) bool {
	if name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
		return false
	}
	info, err := os.Lstat(filepath.Join(d.root, markDir, name))
	return err == nil && info.Mode().IsRegular()
}

// PruneMarks removes the marks of output directories that are gone.
func (d *Service) PruneMarks() {
	entries, err := os.ReadDir(filepath.Join(d.root, markDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(d.root, e.Name())); errors.Is(err, fs.ErrNotExist) {
			unmark(d.root, e.Name())
		}
	}
}
