package tree

import (
	"fmt"
	"os"
	"path/filepath"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/client"
)

// workspace is a directory of the user that the agents of a tree share as /workspace. The files there that programs of
// this machine would execute later are read-only in every sandbox of the tree. nil: a directory of the run.
type workspace struct {
	dir    string
	mounts []runner.Mount // read-only, over these files
	before *upper.Autorun
}

// openWorkspace checks the directory that a user chose. The agents can write to all of it, so it must contain neither the
// home of the user, unless that is a checkout, nor the directory of the run, which holds files that no sandbox may change.
// run is empty if there is no such directory yet.
func openWorkspace(dir, run string) (*workspace, error) {
	if dir == "" {
		return nil, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("find home directory: %w", err)
	}
	w := &workspace{}
	if w.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("workspace %q: %w", dir, fsutil.Reason(err))
	}
	if w.mounts, err = client.CoverHome(runner.Mount{Source: w.dir, Target: "/workspace"}); err != nil {
		return nil, err
	}
	if len(w.mounts) > 0 {
		home = "" // a checkout, with demesne's own places in it covered
	}
	for _, c := range []struct{ path, what string }{{home, "your home directory"}, {run, "the directory of the run"}} {
		if real, err := filepath.EvalSymlinks(c.path); c.path != "" && err == nil && fsutil.Contains(w.dir, real) {
			return nil, text.Hinted(fmt.Errorf("workspace %q: it contains %s, and an agent may change everything in it", dir, c.what), "choose the directory of a project")
		}
	}
	if w.before, err = upper.FindAutorun(w.dir); err != nil {
		return nil, fmt.Errorf("workspace %q: %w", dir, fsutil.Reason(err))
	}
	for _, p := range w.before.Protected() {
		w.mounts = append(w.mounts, runner.Mount{Source: filepath.Join(w.dir, p), Target: filepath.Join("/workspace", p), ReadOnly: true})
	}
	return w, nil
}

// review names the files that the run left or changed, and that a program of this machine would execute.
func (w *workspace) review(tell func(format string, a ...any)) {
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

// leave removes the directory where agent id started, if the agent left no file there: the user's directory is not a place
// for it.
func (w *workspace) leave(id, context string) {
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return
	}
	defer root.Close()
	start := filepath.Join(inside, id)
	if info, err := root.Lstat(filepath.Join(start, context)); err == nil && info.Mode()&os.ModeSymlink != 0 {
		root.Remove(filepath.Join(start, context))
	}
	root.Remove(start)
	root.Remove(inside)
}
