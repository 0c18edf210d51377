package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/client"
)

// outputs is the output root with the directories in it: the sandboxes', and the directories of their logs, marks and
// manifests.
type outputs struct {
	dir      string          // see Options.OutputRoot
	frontend runner.Frontend // whose directories are made
	marks    bool            // also the command line's
}

// root returns the directory of the output directories, which may not exist.
func (u outputs) root() (string, error) {
	if u.dir != "" {
		return u.dir, nil
	}
	return client.OutputRoot()
}

// make creates the root, and returns it absolute and without symbolic links.
func (u outputs) make() (string, error) {
	root, err := u.root()
	if err == nil {
		err = os.MkdirAll(root, ownerOnly)
	}
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return "", fmt.Errorf("make output root: %w", err)
	}
	return root, nil
}

// open checks the directory that the caller named, and creates it if it is missing. Without one it creates a new
// directory below the output root.
func (u outputs) open(arg string) (o *outDir, err error) {
	o = &outDir{unmark: func() {}}
	defer func() {
		if err != nil {
			o.undo()
		}
	}()
	if arg == "" {
		return o, u.fresh(o, "")
	}
	abs, err := filepath.Abs(arg)
	if err == nil {
		err = o.mkdirAll(abs)
	}
	if err == nil {
		o.path, err = writableDir(abs)
	}
	if err == nil {
		err = o.hold()
	}
	if err != nil {
		return o, fmt.Errorf("output %q: %w", arg, err)
	}
	return o, nil
}

// openInside opens an existing directory that a sandbox can reach. It follows no symbolic link.
func openInside(path string) (*outDir, error) {
	o := &outDir{path: filepath.Clean(path), unmark: func() {}}
	var err error
	if o.dir, err = openResolved(o.path, unix.O_RDONLY); err != nil {
		return o, fmt.Errorf("output %q: %w", path, err)
	}
	return o, nil
}

// fresh creates a new directory for o, below the output root. If name is empty, it chooses one.
func (u outputs) fresh(o *outDir, name string) error {
	root, err := u.root()
	if err != nil {
		return elsewhere(fmt.Errorf("output: %w", err))
	}
	var real string
	if err = o.mkdirAll(root); err == nil {
		real, err = writableDir(root)
	}
	for err == nil {
		o.path = filepath.Join(real, cmp.Or(name, OutputName()))
		if err = os.Mkdir(o.path, ownerOnly); err == nil {
			o.made, o.fresh = append(o.made, o.path), true
			break
		}
		if err = fsutil.Reason(err); name == "" && errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = o.hold()
	}
	if err == nil {
		err = u.mark(real, o.name())
		o.unmark = func() { unmark(real, o.name()) }
	}
	if err != nil {
		return elsewhere(fmt.Errorf("output root %q: %w", root, err))
	}
	return nil
}

// removeEmpty removes the output directory of a removed sandbox. It does so only if dir is empty, lies
// directly in the root, and has a name of the known form.
func (u outputs) removeEmpty(dir string) {
	root, err := u.root()
	if err != nil {
		return
	}
	if real, err := fsutil.EvalSymlinks(root); err == nil && filepath.Dir(dir) == real && isOurs(filepath.Base(dir)) {
		unix.Rmdir(dir)
	}
}

// tidy removes egress logs last written before the given time, and the manifests and marks of directories that are
// gone.
func (u outputs) tidy(before time.Time) (logs int, err error) {
	root, err := u.root()
	if err != nil {
		return 0, err
	}
	pruneMarks(root)
	if logs, err = pruneLogs(root, before); err == nil {
		_, err = pruneManifests(root, before)
	}
	return logs, err
}

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
