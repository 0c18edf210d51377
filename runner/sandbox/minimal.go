package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// makeMinimal makes a sandbox where the machine forbids namespaces. Commands run in the host's tree, confined by
// Landlock and seccomp alone. /in, /out and /workspace do not exist; $DEMESNE_IN and similar variables name their
// substitutes. The processes are descendants of a demesne-init that is a subreaper instead of PID 1.
func (s *Sandbox) makeMinimal(m *ipc.Message, t *stages) (err error) {
	if s.spec.Rootfs != nil {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "mount image: this machine forbids namespaces: " + s.on.Boot.ModeWhy,
			Hint: s.on.Boot.ModeFix,
		}
	}
	if s.egress != nil || len(s.spec.Publish) > 0 || slices.ContainsFunc(s.spec.Inputs, func(in runner.Input) bool { return in.Socket }) {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "make network: this machine forbids namespaces: " + s.on.Boot.ModeWhy,
			Hint: s.on.Boot.ModeFix,
		}
	}
	if err := s.files.own.open(s.leave); err != nil {
		return err
	}
	if s.group, err = s.on.Limits.New(s.id, s.spec.Limits); err != nil {
		return err
	}
	s.undo.add(func() { s.group.Close() })
	if err := s.files.layOut(); err != nil {
		return err
	}
	t.mark("scratch")
	if err := s.startMinimal(); err != nil {
		return err
	}
	t.mark("clone")
	if err := s.group.Add(s.init.pid); err != nil {
		return err
	}
	if err := s.init.restrict(container.MinimalSetup(s.spec.Inputs, s.files.dirs)); err != nil {
		return err
	}
	t.mark("guest")
	if f := s.init.facts; f.LandlockABI == 0 || !f.LandlockFS {
		return ipc.Errorf(ipc.CodeRequirement, "restrict sandbox: neither namespaces nor Landlock: nothing would hold it")
	}
	return s.complete(m, t)
}

// layOut makes the scratch tree: in/ has links to the inputs, the rest is empty.
func (f *files) layOut() (err error) {
	dir := filepath.Join(f.on.Dir, f.id)
	if f.own.dir != nil {
		dir, f.own.onDisk = f.own.dir.Tree(), true
	} else {
		f.undo.add(func() { os.RemoveAll(dir) })
	}
	if err := os.RemoveAll(filepath.Join(dir, "in")); err != nil { // from an earlier run
		return err
	}
	f.dirs = container.Dirs{
		In: filepath.Join(dir, "in"), Out: f.spec.Out, Workspace: filepath.Join(dir, "workspace"),
		Home: filepath.Join(dir, "home"), Tmp: filepath.Join(dir, "tmp"),
	}
	for _, p := range []string{f.dirs.In, f.dirs.Workspace, f.dirs.Home, f.dirs.Tmp} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return err
		}
	}
	if f.spec.Workspace != "" {
		f.dirs.Workspace = f.spec.Workspace
	}
	for _, in := range f.spec.Inputs {
		if err := os.Symlink(in.Path, filepath.Join(f.dirs.In, in.Name)); err != nil {
			return err
		}
	}
	if f.binds.out, err = os.Open(f.spec.Out); err != nil {
		return err
	}
	if err := f.binds.look(&f.own, false); err != nil {
		return err
	}
	f.undo.add(f.giveBack)
	return nil
}

// rlimits returns the group's limits. Without a user namespace it omits RLIMIT_NPROC, which would count the user's
// other processes (getrlimit(2)).
func (s *Sandbox) rlimits() []pid1api.Rlimit {
	r := s.group.Rlimits()
	if s.files.tree != nil {
		return r
	}
	return slices.DeleteFunc(r, func(l pid1api.Rlimit) bool { return l.Resource == unix.RLIMIT_NPROC })
}
