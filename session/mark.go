package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demesne/runner"
)

// markDir holds a file for each output directory of an MCP server or the HTTP API, with the same name. The command line
// keeps its outputs in the same root, and a model must not read those. The file has the namespace of the server's caller,
// or is empty. No sandbox can write to markDir.
const markDir = ".mcp"

// mark records that an output directory belongs to an MCP server, the HTTP API or a namespace. It does nothing for the
// command line.
func (u outputs) mark(root, name string) error {
	if u.frontend == runner.FrontendCLI && !u.marks {
		return nil
	}
	dir := filepath.Join(root, markDir)
	err := os.MkdirAll(dir, ownerOnly)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(u.frontend.Namespace()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("mark output directory: %w", err)
	}
	return nil
}

func unmark(root, name string) { os.Remove(filepath.Join(root, markDir, name)) }

// marked reports whether the output directory of that name belongs to an MCP server or the HTTP API of the same namespace.
// The command line has the namespace of a server without one.
func (u outputs) marked(name string) bool {
	root, err := u.root()
	if err != nil || name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
		return false
	}
	owner, err := os.ReadFile(filepath.Join(root, markDir, name))
	return err == nil && string(owner) == u.frontend.Namespace()
}

// pruneMarks removes the marks of removed output directories.
func pruneMarks(root string) {
	entries, err := os.ReadDir(filepath.Join(root, markDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(root, e.Name())); errors.Is(err, fs.ErrNotExist) {
			unmark(root, e.Name())
		}
	}
}
