package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"demesne/runner"
	"demesne/runner/container"
	"demesne/runner/ipc"
)

// raiseMinimal makes a sandbox where the machine forbids namespaces. Commands run in the host's tree, confined by
// Landlock and seccomp alone. /in, /out and /workspace do not exist; $DEMESNE_IN and similar variables name their
// substitutes. The processes are descendants of a demesne-init that is a subreaper instead of PID 1.
func (b *building) raiseMinimal() (err error) {
	if b.spec.Rootfs != nil {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "mount image: this machine forbids namespaces: " + b.machine.Boot.ModeWhy,
			Hint: b.machine.Boot.ModeFix,
		}
	}
	if b.egress != nil || len(b.spec.Publish) > 0 || slices.ContainsFunc(b.spec.Inputs, func(in runner.Input) bool { return in.Socket }) {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "make network: this machine forbids namespaces: " + b.machine.Boot.ModeWhy,
			Hint: b.machine.Boot.ModeFix,
		}
	}
	if err := admitMinimalMounts(&b.spec); err != nil {
		return err
	}
	if len(b.spec.Hosts) > 0 || len(b.spec.Tmpfs) > 0 {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "mount tmpfs or write hosts: this machine forbids namespaces: " + b.machine.Boot.ModeWhy,
			Hint: b.machine.Boot.ModeFix,
		}
	}
	if err := b.files.persistent.open(b.leave); err != nil {
		return err
	}
	if b.group, err = b.machine.Limits.New(b.id, b.spec.Limits); err != nil {
		return err
	}
	b.undo.add(func() { b.group.Close() })
	if err := b.files.layOut(); err != nil {
		return err
	}
	b.mark("scratch")
	if err := b.startMinimal(); err != nil {
		return err
	}
	b.mark("clone")
	if err := b.group.Add(b.init.pid); err != nil {
		return err
	}
	if err := b.init.restrict(container.MinimalSetup(b.spec, b.files.dirs)); err != nil {
		return err
	}
	b.mark("guest")
	if f := b.init.facts; f.LandlockABI == 0 || !f.LandlockFS {
		return ipc.Errorf(ipc.CodeRequirement, "restrict sandbox: neither namespaces nor Landlock: nothing would confine it")
	}
	return nil
}

// startMinimal starts demesne-init where the machine forbids namespaces.
func (b *building) startMinimal() error {
	init, err := b.machine.starter.StartMinimal()
	if err != nil {
		return err
	}
	b.serveInit(init)
	b.undo.add(func() {
		// When the socket closes, demesne-init kills what it started and exits.
		b.init.peer.Close()
		init.Wait()
		b.group.Kill()
	})
	return nil
}

// layOut makes the scratch tree: in/ has links to the inputs, the rest is empty.
func (f *files) layOut() (err error) {
	dir := filepath.Join(f.machine.Dir, f.id)
	if f.persistent.dir != nil {
		dir, f.persistent.onDisk = f.persistent.dir.Tree(), true
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
	if f.binds.out.File, err = os.Open(f.spec.Out); err != nil {
		return err
	}
	if err := f.binds.look(&f.persistent, false); err != nil {
		return err
	}
	f.undo.add(f.giveBack)
	return nil
}
