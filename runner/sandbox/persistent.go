package sandbox

import (
	"errors"
	"fmt"
	"os"
	"time"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// persistent is the part of a persistent sandbox that outlives its processes: its directory in package store, and
// what a record of it says. Only the goroutine that makes or ends the sandbox changes it, except for notice.
type persistent struct {
	*state
	dir     *store.Dir // nil: it has no directory
	why     error      // why its files are not kept
	base    []string   // layers of package store below its own writes
	secrets []string   // names of all secrets that it was ever started with
	onDisk  bool       // its writes go to dir
	upper   *os.File   // the directory of its writes

	unsettled *time.Time // since when /out may hold entries that are not settled; nil: it holds none
	rebooted  bool       // the machine rebooted since then

	restarted bool
	quiet     bool          // nothing ran in it when it was ended
	maker     store.Process // see [store.Record]

	notice notice // reported with the next command; guarded by mu
}

// notice tells the caller of the next command about a restart.
type notice struct {
	restarted bool
	secrets   []string // names of secrets that the restarted sandbox does not have
}

// open opens the directory of a persistent sandbox. A restarted sandbox gets the directory that it had; another gets
// a new one, or none for the reason in p.why. leave runs after the last process has ended.
func (p *persistent) open(leave func()) error {
	if p.spec.Lifetime != runner.Persistent {
		return nil
	}
	if p.restarted {
		return p.takeUp(leave)
	}
	var d *store.Store
	if d, p.why = p.machine.Store(); d == nil {
		return nil
	}
	if p.Bound() {
		p.maker = p.machine.History.Self()
	}
	if p.dir, p.why = d.New(p.id); p.dir != nil {
		p.undo.add(leave)
	}
	return nil
}

// Bound reports whether a persistent sandbox is removed when its creator's connection ends: see [runner.Spec.OfBuild].
func (s *state) Bound() bool { return s.spec.OfBuild() }

// takeUp opens the directory that the sandbox had when it last had processes.
func (p *persistent) takeUp(leave func()) error {
	d, err := p.machine.Store()
	if err != nil {
		return err
	}
	dir, rec, err := take(d, p.id)
	if err != nil {
		return err
	}
	// p has no directory yet: the end of a refused restart writes no record, which would have this runner's id map.
	if err := p.machine.mapped(rec); err != nil {
		return errors.Join(err, dir.Close())
	}
	p.dir, p.stay, p.base = dir, true, rec.Base
	p.unsettled, p.maker = rec.Unsettled, rec.Maker
	p.rebooted = rec.Unsettled != nil && rec.Init.Boot != p.machine.History.Self().Boot
	p.undo.add(leave)
	return waitEnd(rec.Init)
}

// resume marks /out as unsettled. If an earlier run left /out unsettled, the next settling covers the changes since
// then too.
func (p *persistent) resume(out *grants.Dir) {
	if u := p.unsettled; u != nil && u.Before(out.Since) {
		out.Since = *u
	}
	p.unsettled = &out.Since
}

// layer makes l write to the sandbox's own directory. release closes the directories that are open for the mount.
func (p *persistent) layer(l *rootfs.Layout) (release func(), err error) {
	if p.dir == nil {
		return func() {}, nil
	}
	tree, err := p.dir.OpenTree()
	if err != nil {
		return nil, err
	}
	l.Kept = tree
	if len(p.base) == 0 {
		return func() { tree.Close() }, nil
	}
	held, err := p.dir.Hold(p.base)
	if err != nil {
		tree.Close()
		return nil, err
	}
	p.undo.add(held.Close)
	l.Below = held.Uppers
	return func() { tree.Close(); held.CloseUppers() }, nil
}

// mounted records, after the tree is mounted from l, whether the sandbox's writes are on disk. It fails for a
// restarted sandbox whose files cannot be mounted.
func (p *persistent) mounted(l rootfs.Layout, tree *rootfs.Tree) error {
	if p.dir == nil {
		return nil
	}
	if tree.Upper != rootfs.UpperKept {
		if p.why = tree.KeptWhy; p.restarted {
			return fmt.Errorf("mount its files: %w", p.why)
		}
		return nil
	}
	p.onDisk = true
	var err error
	if p.upper, err = rootfs.KeptUpper(l.Kept); err != nil {
		return err
	}
	p.undo.add(func() { p.upper.Close() })
	return nil
}

// record writes what another runner must know to restart the sandbox. i is its state, ends the time when it expires,
// and pid its PID 1.
func (p *persistent) record(i runner.Info, ends time.Time, pid int) error {
	i.Receipt = nil // the next start makes a new one
	i.Expires = ends
	init, err := store.Identify(pid)
	if err != nil {
		init = store.Process{} // it is dead
	}
	return p.dir.Write(store.Record{Info: i, Map: p.machine.idMap(), Init: init, Base: p.base, Secrets: p.secrets, Quiet: p.quiet, Unsettled: p.unsettled, Maker: p.maker})
}

// keeps returns an error that says why its files are not kept, or nil if they are.
func (p *persistent) keeps(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stay:
		return nil
	case p.ending:
		return p.endedErr(what)
	}
	return ipc.Errorf(ipc.CodeInvalid, "%s %q: its files are not on disk: %v", what, p.id, p.why)
}

// takeNotice returns the notice, only once.
func (p *persistent) takeNotice() (n notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, p.notice = p.notice, notice{}
	return n
}
