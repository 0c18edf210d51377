package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/given"
	"demesne/runner/ipc"
	"demesne/runner/store"
	"demesne/runner/userns"
)

// kept is the part of a persistent sandbox that outlives its processes.
type kept struct {
	box     *store.Dir // its directory; nil: it has no directory
	why     error      // why its files are not kept
	base    []string   // layers of package store below its own writes
	secrets []string   // names of all secrets that it was ever started with
	onDisk  bool       // its writes go to box
	written *os.File   // the directory of its writes

	unsettled *time.Time // since when /out may hold entries that are not settled; nil: it holds none
	rebooted  bool       // the machine rebooted since then

	restarted bool
	quiet     bool     // nothing ran in it when it was ended
	stay      bool     // keep its files when it ends; guarded by the sandbox's mu
	news      bool     // report the restart with the next command's result; guarded by the sandbox's mu
	lacks     []string // names of secrets that the restart lacks; guarded by the sandbox's mu
}

// keeper opens the directory of persistent sandboxes. A caller creates that directory for the first of them.
func (e *Engine) keeper() (*store.Store, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.boot.Kept == "" {
		return nil, errors.New("the user has no home directory")
	}
	var err error
	if e.kept == nil {
		e.kept, err = store.Open(e.boot.Kept)
	}
	return e.kept, err
}

// sweep removes expired sandboxes and the remains of killed runners. A concurrent call waits for the one under way.
func (e *Engine) sweep() ([]string, error) {
	d, err := e.keeper()
	if err != nil {
		return nil, nil
	}
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
	removed, err := d.Sweep()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
	}
	return removed, err
}

// idMap names the id mapping of the files of a persistent sandbox. It can restart only under the same mapping.
func (e *Engine) idMap() string {
	if e.boot.Mode == userns.ModeMinimal {
		return "minimal"
	}
	return layerKey(e.boot)
}

// keep gives a persistent sandbox a directory on a disk: a new one where possible, or the one it had.
func (s *sandbox) keep() (err error) {
	if s.spec.Lifetime != runner.Persistent {
		return nil
	}
	if s.kept.restarted {
		return s.takeUp()
	}
	var d *store.Store
	if d, s.kept.why = s.e.keeper(); d == nil {
		return nil
	}
	if s.kept.box, s.kept.why = d.New(s.id); s.kept.box != nil {
		s.undo.add(s.leave)
	}
	return nil
}

// takeUp opens the directory that s had when it last had processes.
func (s *sandbox) takeUp() error {
	d, err := s.e.keeper()
	if err != nil {
		return err
	}
	box, rec, err := take(d, s.id)
	if err != nil {
		return err
	}
	s.kept.box, s.kept.stay, s.kept.base = box, true, rec.Base
	s.kept.unsettled = rec.Unsettled
	s.kept.rebooted = rec.Unsettled != nil && rec.Init.Boot != s.e.state.Self().Boot
	s.undo.add(s.leave)
	if rec.Map != s.e.idMap() {
		return ipc.Errorf(ipc.CodeRequirement, "open sandbox %q: its files use the id map %q, and this runner uses %q", s.id, rec.Map, s.e.idMap())
	}
	return gone(rec.Init)
}

// take opens the directory of a sandbox that existed a moment ago.
func take(d *store.Store, id string) (*store.Dir, store.Record, error) {
	box, rec, err := d.Take(id)
	switch {
	case errors.Is(err, store.ErrBusy):
		err = ipc.Errorf(ipc.CodeBusy, "%w", err)
	case errors.Is(err, fs.ErrNotExist):
		err = ipc.Errorf(ipc.CodeNoSuchSandbox, "find sandbox %q: it was removed", id)
	}
	return box, rec, err
}

// resume extends the settling of /out back to the last time it was not settled, and marks /out as unsettled from
// now on.
func (k *kept) resume(out *given.Dir) {
	if u := k.unsettled; u != nil && u.Before(out.Since) {
		out.Since = *u
	}
	k.unsettled = &out.Since
}

// gone waits for the end of a PID 1 whose runner was killed. PID 1 and its overlay outlive the runner by a moment.
func gone(init store.Process) error {
	for deadline := time.Now().Add(initTimeout); init.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return ipc.Errorf(ipc.CodeBusy, "open sandbox: its PID 1 still runs as process %d", init.PID)
		}
	}
	return nil
}

// keepIn makes s write to its own directory. release closes the directories that are open for the mount.
func (s *sandbox) keepIn(l *rootfs.Layout) (release func(), err error) {
	if s.kept.box == nil {
		return func() {}, nil
	}
	tree, err := s.kept.box.OpenTree()
	if err != nil {
		return nil, err
	}
	l.Kept = tree
	if len(s.kept.base) == 0 {
		return func() { tree.Close() }, nil
	}
	held, err := s.kept.box.Hold(s.kept.base)
	if err != nil {
		tree.Close()
		return nil, err
	}
	s.undo.add(held.Close)
	l.Below = held.Uppers
	return func() { tree.Close(); held.CloseUppers() }, nil
}

// keptOnDisk records, after the tree is mounted, whether the writes of s are on disk. It fails for a restarted
// sandbox whose files cannot be mounted.
func (s *sandbox) keptOnDisk(l rootfs.Layout) error {
	if s.kept.box == nil {
		return nil
	}
	if s.tree.Upper != rootfs.UpperKept {
		if s.kept.why = s.tree.KeptWhy; s.kept.restarted {
			return fmt.Errorf("mount its files: %w", s.kept.why)
		}
		return nil
	}
	s.kept.onDisk = true
	var err error
	if s.kept.written, err = rootfs.KeptUpper(l.Kept); err != nil {
		return err
	}
	s.undo.add(func() { s.kept.written.Close() })
	return nil
}

// moveIn is the last step of making a persistent sandbox. From here on it no longer depends on its creator.
func (s *sandbox) moveIn() error {
	if s.spec.Lifetime != runner.Persistent {
		return nil
	}
	s.startClock()
	if !s.kept.onDisk {
		s.e.state.Write(s.info())
		return nil
	}
	// On a full disk the earlier record is good enough: the files of the sandbox itself may be what fills the disk.
	if err := s.record(); err != nil && !(s.kept.restarted && ipc.Full(err)) {
		return err
	}
	s.mu.Lock()
	s.kept.stay = true
	s.mu.Unlock()
	return nil
}

// record writes what another runner must know to restart s.
func (s *sandbox) record() error {
	i := s.info()
	i.Receipt = nil // the next start makes a new one
	s.mu.Lock()
	i.Expires = s.life.ends
	s.mu.Unlock()
	init, err := store.Identify(s.pid)
	if err != nil {
		init = store.Process{} // it is dead
	}
	return s.kept.box.Write(store.Record{Info: i, Map: s.e.idMap(), Init: init, Base: s.kept.base, Secrets: s.kept.secrets, Quiet: s.kept.quiet, Unsettled: s.kept.unsettled})
}

// leave runs after the last process has ended. It closes the directory or removes it.
func (s *sandbox) leave() {
	var err error
	if s.stays() {
		err = errors.Join(s.recordEnd(), s.kept.box.Close())
	} else {
		err = s.kept.box.Remove()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
	}
}

// recordEnd writes the last result. It writes nothing for a sandbox that has no result and was not quiet.
func (s *sandbox) recordEnd() error {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last == nil && !s.kept.quiet {
		return nil
	}
	return s.record()
}

func (s *sandbox) stays() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.stay
}

// keeps returns an error that says why the files of s are not kept, or nil if they are.
func (s *sandbox) keeps(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.kept.stay:
		return nil
	case s.ending:
		return s.endedErr(what)
	}
	return ipc.Errorf(ipc.CodeInvalid, "%s %q: its files are not on disk: %v", what, s.id, s.kept.why)
}

// remove ends s and removes its files.
func (s *sandbox) remove(why string) {
	s.mu.Lock()
	if !s.ending {
		s.kept.stay = false
	}
	s.mu.Unlock()
	s.end(why)
}
