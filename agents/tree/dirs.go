package tree

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"demesne/agents"
	"demesne/internal/fsutil"
)

// dirs are the directories of one agent. Its sandbox can write to out, workspace and home. It can read config. It never
// sees sidecar, which holds the files that this program writes while the agent runs.
//
//	BASE/config BASE/home
//	BASE/out BASE/workspace BASE/sidecar-results  of the first agent
//	FIRST/home FIRST/out FIRST/workspace          of a follow-up, in the directory of its conversation's first run
//	BASE/children/NAME  the base of a child; its out and its sidecar are child/NAME in its parent's
type dirs struct {
	base, config, sidecar, home string
	out, workspace              string
	outDir                      *os.File // out, opened before a sandbox could replace it

	first string // the base whose home and workspace the agent has
	lock  func() // releases home, which one run at a time has
	stays bool   // a follow-up needs home
}

// makeDirs makes the directories below base that d lacks. out and workspace may be given.
func (d *dirs) make() (err error) {
	d.first = cmp.Or(d.first, d.base)
	d.config, d.home = filepath.Join(d.base, "config"), filepath.Join(d.first, "home")
	if d.sidecar == "" {
		d.sidecar = filepath.Join(d.base, agents.SidecarDir)
	}
	all := []string{d.config, d.sidecar, d.home}
	if d.workspace == "" {
		d.workspace = filepath.Join(d.first, "workspace")
		all = append(all, d.workspace)
	}
	if d.out == "" {
		d.out = filepath.Join(d.base, "out")
	}
	if d.outDir == nil { // a child's exists
		all = append(all, d.out)
	}
	for _, dir := range all {
		if err := os.MkdirAll(dir, ownerOnly); err != nil {
			return fmt.Errorf("make directory of agent: %w", err)
		}
	}
	if d.lock, err = agents.LockHome(d.home); err != nil {
		return fmt.Errorf("continue %q: %w", d.start(), err)
	}
	if d.outDir == nil {
		if d.out, err = filepath.EvalSymlinks(d.out); err != nil {
			return fmt.Errorf("open output directory: %w", err)
		}
		if d.outDir, err = os.Open(d.out); err != nil {
			return fmt.Errorf("open output directory: %w", err)
		}
	}
	return nil
}

// start names the directory where the agent starts: see [workspace.MakeStart]. A follow-up starts in the directory of the
// first run, since programs find their sessions by it.
func (d *dirs) start() string { return filepath.Base(d.first) }

// close closes what make opened. It removes the home, or only its caches if a follow-up needs it.
func (d *dirs) close() {
	at, name := d.first, filepath.Base(d.home)
	if d.stays {
		at, name = d.home, ".cache"
	}
	if dir, err := os.Open(at); err == nil {
		fsutil.RemoveAll(int(dir.Fd()), name)
		dir.Close()
	}
	d.lock()
	d.outDir.Close()
}

// fill writes files into a directory that no sandbox can write to yet. Names may have slashes.
func fill(dir string, files map[string][]byte) error {
	for name, content := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("write %q: not below its directory", name)
		}
		at := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(at), ownerOnly)
		if err == nil {
			err = os.WriteFile(at, content, 0o600)
		}
		if err != nil {
			return fmt.Errorf("write file of agent: %w", err)
		}
	}
	return nil
}

// deliver copies the files of the host from sidecar into out, in place of whatever sandboxes put there.
func (d *dirs) deliver() error {
	from, err := os.OpenRoot(d.sidecar)
	if err != nil {
		return fmt.Errorf("deliver results: %w", err)
	}
	defer from.Close()
	to, err := openRoot(d.outDir)
	if err != nil {
		return fmt.Errorf("deliver results: %w", err)
	}
	defer to.Close()
	return agents.Place(from, to)
}
