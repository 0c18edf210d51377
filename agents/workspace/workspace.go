// Package workspace has the directory that coding agents share as /workspace: one of the user, with the files that programs of
// this machine would execute later read-only, and the place in it where each agent starts.
package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/client"
)

// Workspace is a directory of the user that the agents of a tree share as /workspace. nil: a directory of the run.
type Workspace struct {
	Dir    string
	Mounts []runner.Mount // read-only, over the files that programs of this machine would execute later
	before *upper.Autorun
}

// Open checks the directory that a user chose. The agents can write to all of it, so it must contain neither the
// home of the user, unless that is a checkout, nor the directory of the run, which holds files that no sandbox may change.
// run is empty if there is no such directory yet.
func Open(dir, run string) (*Workspace, error) {
	if dir == "" {
		return nil, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find home directory: %w", err)
	}
	w := &Workspace{}
	if w.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("workspace %q: %w", dir, fsutil.Reason(err))
	}
	if w.Mounts, err = client.CoverHome(runner.Mount{Source: w.Dir, Target: "/workspace"}); err != nil {
		return nil, err
	}
	if len(w.Mounts) > 0 {
		home = "" // a checkout, with demesne's own places in it covered
	}
	for _, c := range []struct{ path, what string }{{home, "your home directory"}, {run, "the directory of the run"}} {
		if real, err := filepath.EvalSymlinks(c.path); c.path != "" && err == nil && fsutil.Contains(w.Dir, real) {
			return nil, text.Hinted(fmt.Errorf("workspace %q: it contains %s, and an agent may change everything in it", dir, c.what), "choose the directory of a project")
		}
	}
	if w.before, err = upper.FindAutorun(w.Dir); err != nil {
		return nil, fmt.Errorf("workspace %q: %w", dir, fsutil.Reason(err))
	}
	for _, p := range w.before.Protected() {
		w.Mounts = append(w.Mounts, runner.Mount{Source: filepath.Join(w.Dir, p), Target: filepath.Join("/workspace", p), ReadOnly: true})
	}
	return w, nil
}

// Review names the files that the run left or changed, and that a program of this machine would execute.
func (w *Workspace) Review(tell func(format string, a ...any)) {
	if w == nil {
		return
	}
	lines, err := w.before.Review()
	if err != nil {
		tell("%v", err)
	}
	for _, line := range lines {
		tell("%s", line)
	}
}

// Leave removes the directory where agent id started, if the agent left no file there: the user's directory is not a place
// for it.
func (w *Workspace) Leave(id, context string) {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return
	}
	defer root.Close()
	start := filepath.Join(Starts, id)
	if info, err := root.Lstat(filepath.Join(start, context)); err == nil && info.Mode()&os.ModeSymlink != 0 {
		root.Remove(filepath.Join(start, context))
	}
	root.Remove(start)
	root.Remove(Starts)
}

// Starts is the directory in /workspace where agents start, each in one of its own. It is not .demesne: a home directory
// that is a checkout has demesne's own files at that name.
const Starts = ".demesne-agents"

// MakeStart makes the directory in a workspace where agent id starts, with a link to the context file in config, a path of its sandbox.
// Other sandboxes may be writing to the workspace. os.Root keeps every step inside it.
func MakeStart(dir, id, context, config string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer root.Close()
	start := path.Join(Starts, id)
	if err := root.MkdirAll(start, 0o700); err != nil {
		return fmt.Errorf("make %q in the workspace: %w", start, err)
	}
	link := path.Join(start, context)
	err = root.Symlink(path.Join(config, context), link)
	if errors.Is(err, fs.ErrExist) && root.Remove(link) == nil { // of an earlier run of the conversation
		err = root.Symlink(path.Join(config, context), link)
	}
	if err != nil {
		return fmt.Errorf("link %q in the workspace: %w", context, err)
	}
	return nil
}
