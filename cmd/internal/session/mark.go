package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// markDir has an empty file for each output directory that a desk made, by its name: callers of other doors keep
// their outputs in the same root, and a model must not read those. No sandbox can write there.
const markDir = ".mcp"

// mark notes that an output directory is a desk's.
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

// Made says whether the directory with that name in the output root was made by a desk, this one or another.
func (d *Service) Made(name string) bool {
	if name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
		return false
	}
	info, err := os.Lstat(filepath.Join(d.root, markDir, name))
	return err == nil && info.Mode().IsRegular()
}

// PruneMarks forgets output directories that are gone.
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
