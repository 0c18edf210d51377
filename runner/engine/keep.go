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

// kept is what of a persistent sandbox outlives its processes.
type kept struct {
	box     *store.Dir // its directory; nil: it has none
	why     error      // its files are not kept
	base    []string   // of package keep, below what it writes
	secrets []string   // names of those that it was ever started with
	onDisk  bool       // what it writes is in box
	written *os.File   // that

	unsettled *time.Time // since when /out may have what was not settled; nil: it has none
	rebooted  bool       // the machine was, meanwhile

	restarted bool
	quiet     bool     // nothing ran in it when it was ended
	stay      bool     // its files, when it ends; under the sandbox's mu
	news      bool     // that it was restarted, until a command's result says so; under the same
	lacks     []string // names of secrets that it was restarted without, likewise
}

// keeper opens the directory of sandboxes that outlive us. It is there when a caller has made it, for the
// first of them.
func (e *Engine) keeper() (*store.Store, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.boot.Kept == "" {
		return nil, errors.New("there is no home directory")
	}
	var err error
	if e.kept == nil {
		e.kept, err = store.Open(e.boot.Kept)
	}
	return e.kept, err
}

// sweep removes what has expired and what killed runners left. Who asks for it while another one is under way
// wants that to be through, too.
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

// idMap names the ids that files of a kept sandbox have. Only under the same ones can it go on.
func (e *Engine) idMap() string {
	if e.boot.Mode == userns.ModeMinimal {
		return "minimal"
	}
	return layerKey(e.boot)
}

// keep gives a persistent sandbox its directory on a disk: a new one, if there can be one, or the one it had.
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

// takeUp takes the directory that s had when it had processes.
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
		return ipc.Errorf(ipc.CodeRequirement, "take sandbox %q: its files have the ids of %q, and this runner has those of %q", s.id, rec.Map, s.e.idMap())
	}
	return gone(rec.Init)
}

// take takes the directory of a sandbox that was there a moment ago.
func take(d *store.Store, id string) (*store.Dir, store.Record, error) {
	box, rec, err := d.Take(id)
	switch {
	case errors.Is(err, store.ErrBusy):
		err = ipc.Errorf(ipc.CodeBusy, "%w", err)
	case errors.Is(err, fs.ErrNotExist):
		err = ipc.Errorf(ipc.NoSuchSandbox, "find sandbox %q: it was removed", id)
	}
	return box, rec, err
}

// resume has /out settled for as far back as it was not, and notes that it is not from now on.
func (k *kept) resume(out *given.Dir) {
	if u := k.unsettled; u != nil && u.Before(out.Since) {
		out.Since = *u
	}
	k.unsettled = &out.Since
}

// gone waits for a PID 1 whose runner was killed. It outlives that by a moment, and its overlay with it.
func gone(init store.Process) error {
	for deadline := time.Now().Add(initTimeout); init.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return ipc.Errorf(ipc.CodeBusy, "take sandbox: its PID 1 is process %d", init.PID)
		}
	}
	return nil
}

// keepIn has what s writes kept in its directory. The tree below is held until release is called.
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

// keptOnDisk says whether what s writes is, once its tree is mounted. A sandbox that has files already is
// not made without them.
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

// moveIn is the last step of making a persistent sandbox: from here on it stays, whoever dies.
func (s *sandbox) moveIn() error {
	if s.spec.Lifetime != runner.Persistent {
		return nil
	}
	s.startClock()
	if !s.kept.onDisk {
		s.e.state.Write(s.info())
		return nil
	}
	// On a full disk the earlier record of a sandbox has to do: what is in it may be what fills the disk.
	if err := s.record(); err != nil && !(s.kept.restarted && ipc.Full(err)) {
		return err
	}
	s.mu.Lock()
	s.kept.stay = true
	s.mu.Unlock()
	return nil
}

// record writes down what another runner has to know to start s again.
func (s *sandbox) record() error {
	i := s.info()
	i.Receipt = nil // of the next start, it is another one
	s.mu.Lock()
	i.Expires = s.life.ends
	s.mu.Unlock()
	init, err := store.Identify(s.pid)
	if err != nil {
		init = store.Process{} // it is dead
	}
	return s.kept.box.Write(store.Record{Info: i, Map: s.e.idMap(), Init: init, Base: s.kept.base, Secrets: s.kept.secrets, Quiet: s.kept.quiet, Unsettled: s.kept.unsettled})
}

// leave is when nothing runs any more: the directory stays, or goes.
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

// recordEnd notes the last result. A sandbox that could not be started again has nothing to add.
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

// keeps says why the files of s do not stay when it ends, if they do not.
func (s *sandbox) keeps(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.kept.stay:
		return nil
	case s.ending:
		return s.endedErr(what)
	}
	return ipc.Errorf(ipc.CodeInvalid, "%s %q: its files are not kept: %v", what, s.id, s.kept.why)
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
