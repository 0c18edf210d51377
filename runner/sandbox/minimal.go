package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/network"
	"demesne/runner/pid1/pid1api"
)

// raiseMinimal makes a sandbox where the machine forbids namespaces. Commands run in the host's tree, confined by
// Landlock and seccomp alone. $DEMESNE_IN and similar variables name the substitutes of /in, /out and /workspace, see
// takePlaces. The processes are descendants of a demesne-init that is a subreaper instead of PID 1. The runner makes
// their connections.
func (b *building) raiseMinimal() (err error) {
	if err := b.admitMinimal(); err != nil {
		return err
	}
	if err := b.files.persistent.open(b.leave); err != nil {
		return err
	}
	if b.group, err = b.machine.Limits.New(b.id, b.spec.Limits); err != nil {
		return err
	}
	b.undo.add(func() { b.group.Close() })
	out := b.link.begin(b.m)
	lay := b.files.layOut
	if b.spec.Rootfs != nil {
		lay = func() error { return b.files.copyImage(b.m, out) }
	}
	if err := lay(); err != nil {
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
	if err := b.confine(out); err != nil {
		return err
	}
	b.mark("guest")
	return nil
}

// admitMinimal rejects what a machine without namespaces cannot provide.
func (b *building) admitMinimal() error {
	boot := &b.machine.Boot
	if b.spec.Rootfs != nil {
		if err := b.admitChroot(); err != nil {
			return err
		}
	}
	for _, no := range []struct {
		what string
		when bool
	}{
		{"publish ports", len(b.spec.Publish) > 0},
		{"join group", b.egress != nil && b.egress.Group != ""},
		{"share sockets", slices.ContainsFunc(b.spec.Inputs, func(in runner.Input) bool { return in.Socket }) ||
			slices.ContainsFunc(b.spec.Mounts, func(m runner.Mount) bool { return m.Socket })},
		{"mount tmpfs", len(b.spec.Tmpfs) > 0},
		{"write hosts", len(b.spec.Hosts) > 0 && b.spec.Rootfs == nil},
	} {
		if no.when {
			return &ipc.Error{Code: ipc.CodeRequirement, Text: no.what + ": this machine forbids namespaces: " + boot.ModeWhy, Hint: boot.ModeFix}
		}
	}
	return admitMinimalMounts(&b.spec)
}

// admitChroot rejects an image that cannot be the root of a sandbox by chroot(2), and directories that cannot appear in it.
func (b *building) admitChroot() error {
	boot, spec := &b.machine.Boot, &b.spec
	refuse := func(hint, format string, a ...any) error {
		return &ipc.Error{Code: ipc.CodeRequirement, Text: fmt.Sprintf("use image: "+format, a...), Hint: hint}
	}
	if err := container.AdmitChroot(b.machine.Boot); err != nil {
		return err
	}
	switch {
	case spec.Rootfs.Dir != "":
		return refuse("demesne import "+spec.Rootfs.Dir+" NAME", "this machine forbids namespaces, and a directory is not copied: %s", boot.ModeWhy)
	case spec.Workspace != "" || len(spec.Mounts) > 0:
		return refuse(boot.ModeFix, "this machine forbids namespaces, and no directory of the caller can appear in a copied image, but copies in /in: %s", boot.ModeWhy)
	}
	return nil
}

// confine makes PID 1 restrict itself, and connects the sandbox with the network if out is not nil.
func (b *building) confine(out *network.Egress) error {
	var setup pid1api.Setup
	if b.spec.Rootfs != nil {
		setup = container.ChrootSetup(b.spec, b.files.tree.Root)
	} else {
		if err := b.files.trust(out); err != nil {
			return err
		}
		setup = container.MinimalSetup(b.spec, b.files.dirs)
	}
	listener, err := b.init.restrict(setup)
	if err == nil {
		err = container.Unconfined(b.init.facts)
	}
	switch {
	case err != nil:
		listener.Close() // harmless on nil
		return err
	case out == nil:
		return nil
	case listener == nil:
		return ipc.Errorf(ipc.CodeRequirement, "make network without namespaces: %s", strings.Join(b.init.facts.Problems, "; "))
	}
	if b.link.net, err = network.NewSupervised(out, listener); err != nil {
		return err
	}
	admitted, err := b.link.open(b.m)
	if err != nil {
		return err
	}
	return errors.Join(b.init.probe(), admitted())
}

// trust writes the file of certificates of a sandbox with egress, if programs need one. The sandbox cannot change it.
func (f *files) trust(out *network.Egress) error {
	t, err := out.Trust(false)
	if err != nil {
		return err
	}
	file, text := t.OfHost()
	if text != nil {
		file = filepath.Join(filepath.Dir(f.dirs.In), "ca.pem")
		err = os.WriteFile(file, text, 0o600)
	}
	f.dirs.Certs = file
	return err
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

// copyImage makes the copy of the image that becomes the root of the sandbox.
func (f *files) copyImage(m *ipc.Message, out *network.Egress) (err error) {
	cache, dir := f.image.cache(), ""
	if f.persistent.dir != nil {
		dir, f.persistent.onDisk = f.persistent.dir.Tree(), true
	} else if dir, err = f.image.newScratch(cache); err != nil {
		return err
	}
	trust, err := out.Trust(true)
	if err != nil {
		return err
	}
	l, err := f.layout(dir, m, trust)
	if err != nil {
		return err
	}
	held, err := f.image.hold(cache)
	if err != nil {
		return err
	}
	defer held.Close()
	of := rootfs.Image{Lowers: held.FS, WorkingDir: f.spec.Rootfs.WorkingDir, User: f.spec.Rootfs.User, UIDs: 1, GIDs: 1}
	if u := f.spec.User; u != nil {
		of.User = numeric(u)
	}
	if f.tree, err = l.CopyImage(of); err != nil {
		if errors.Is(err, rootfs.ErrNoUser) {
			err = ipc.Errorf(ipc.CodeInvalid, "%w", err)
		}
		return err
	}
	f.placed = true // the tree has them
	if f.scratch, err = os.Open(f.tree.Root); err != nil {
		return err
	}
	f.undo.add(func() { f.scratch.Close() })
	if err := f.shareOut(); err != nil {
		return err
	}
	return f.tree.Gather(f.binds.out.File, f.dirs.Out)
}

// shareOut opens the directories that the sandbox shares with its caller.
func (f *files) shareOut() error {
	if err := f.binds.openHost(); err != nil {
		return err
	}
	if err := f.binds.look(&f.persistent, false); err != nil {
		return err
	}
	f.undo.add(f.giveBack)
	return nil
}

// deliver copies what the sandbox has left in a copied /out to the caller's directory.
func (f *files) deliver() {
	if f.tree == nil || f.tree.Upper != rootfs.UpperChroot || f.binds.out.File == nil {
		return
	}
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.delivery.err = f.tree.Deliver(f.binds.out.File, f.dirs.Out)
}

// delivery is the last copy of /out to the caller. err says why not all of it arrived.
type delivery struct {
	sync.Mutex
	err error
}

// lost returns why not all of /out reached the caller, or nil.
func (d *delivery) lost() error {
	d.Lock()
	defer d.Unlock()
	return d.err
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
	if f.scratch, err = os.Open(dir); err != nil {
		return err
	}
	f.undo.add(func() { f.scratch.Close() })
	if err := f.shareOut(); err != nil {
		return err
	}
	release, err := takePlaces("/", f.dirs)
	if f.placed, f.unplaced = err == nil, err; f.placed {
		f.undo.add(release)
	}
	return nil
}
