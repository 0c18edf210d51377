package sandbox

import (
	"cmp"
	"math"
	"os"
	"time"

	"demesne/rootfs"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"

	"demesne/runner/store"
)

// Fork makes a sandbox or snapshot from the files of s. It copies nothing if no process runs in s: it then ends s, and
// returns stopped. The caller goes on with [Machine.ForkStopped].
func (s *Sandbox) Fork(t api.ForkRequest) (f runner.Forked, stopped bool, err error) {
	d, _ := s.machine.Store()
	<-s.built
	if err := cmp.Or(s.files.persistent.keeps("fork sandbox"), admitUppers(s.Info())); err != nil {
		return f, false, err
	}
	if s.stopQuiet() {
		return f, true, nil
	}
	f, err = s.forkRunning(d, t)
	return f, false, err
}

// stopQuiet ends s if nothing runs in it, so that its files can be shared without a copy. The next command restarts
// it. A sandbox with egress is not ended here, because changed rules and secrets are in no file; one that builds an
// image has neither.
func (s *Sandbox) stopQuiet() bool {
	s.mu.Lock()
	idle := !s.ending && len(s.commands.running) == 0 && (s.egress == nil || s.Bound()) && alone(s.init.pid)
	if idle {
		s.ending, s.files.persistent.quiet = true, true
		s.verdict, s.detail = runner.Lost, "stopped"
	}
	s.mu.Unlock()
	if idle {
		s.cleanup()
		forget(s)
	}
	return idle
}

// forkRunning copies the files that s wrote. It pauses the processes twice: for a moment, and then for as long as
// it takes to find what they changed in between.
//
// The writes cannot become a layer below both sandboxes, as they do for a sandbox without processes. An overlay
// keeps the layers that it was mounted with, and a layer below a mounted overlay must not change
// (Documentation/filesystems/overlayfs.rst). A new overlay would be another file system. The roots, directories,
// mappings and open files of the processes would stay in the old one. So would the Landlock rules, which hold for
// its inodes.
func (s *Sandbox) forkRunning(d *store.Store, t api.ForkRequest) (runner.Forked, error) {
	if err := admitBases(s.id, s.files.persistent.base); err != nil {
		return runner.Forked{}, err
	}
	s.mu.Lock()
	s.lease.used()
	s.mu.Unlock()
	tree, err := s.files.persistent.dir.OpenTree()
	if err != nil {
		return runner.Forked{}, err
	}
	defer tree.Close()
	upperDir, err := rootfs.KeptUpper(tree)
	if err != nil {
		return runner.Forked{}, err
	}
	defer upperDir.Close()
	held, err := s.files.persistent.dir.Hold(s.files.persistent.base)
	if err != nil {
		return runner.Forked{}, err
	}
	defer held.Close()
	defer held.CloseUppers()
	var did runner.Forked
	base, release, err := d.NewBase(func(kept *os.File) (err error) {
		did, err = s.copyRunning(upperDir, kept)
		return err
	})
	if err != nil {
		return runner.Forked{}, ipc.Errorf(ipc.AsError(err).Code, "fork sandbox %q: %w", s.id, err)
	}
	defer release()
	f, err := s.machine.fork(d, store.Record{Info: s.Info(), Map: s.machine.idMap(), Secrets: s.files.persistent.secrets, Base: append(s.files.persistent.base[:len(s.files.persistent.base):len(s.files.persistent.base)], base)}, t)
	did.ID, did.Unpublished = f.ID, f.Unpublished
	return did, err
}

// copyRunning makes the copy. If the mapped files are unknown, it copies everything while the processes are paused.
func (s *Sandbox) copyRunning(upperDir, kept *os.File) (did runner.Forked, err error) {
	most := s.spec.Limits.Disk
	if most <= 0 {
		most = math.MaxInt64
	}
	live, err := upper.NewLiveCopy(upperDir, kept, most)
	if err != nil {
		return did, err
	}
	defer live.Close()
	first, err := pauseLive(s.state, s.init.pid)
	if err != nil {
		return did, err
	}
	defer first.over()
	last := first
	open, unclear := mappedPaths(s.init.pid)
	since := time.Now()
	if unclear == nil && first.still.Held() {
		first.over()
		live.Ahead(since, open)
		if last, err = pauseLive(s.state, s.init.pid); err != nil {
			return did, err
		}
		defer last.over()
	}
	err = live.Settle()
	if err == nil && !last.still.Held() {
		err = ipc.Errorf(ipc.CodeBusy, "%w", errRestless)
	}
	if lost := s.alive("copy files of sandbox"); lost != nil { // files may be missing: removing s begins with ending
		err = lost
	}
	last.over()
	did.Copied, did.Still = live.Bytes(), runner.Duration(first.took)
	if last != first {
		did.Still += runner.Duration(last.took)
	}
	return did, err
}

// livePause is a period in which a sandbox's processes are paused and no command starts.
type livePause struct {
	s     *state
	still *stoppedProcesses // nil: the pause has ended
	began time.Time
	took  time.Duration // set when the pause has ended
}

// pauseLive begins a livePause.
func pauseLive(s *state, pid int) (*livePause, error) {
	s.starting.Lock()
	p := &livePause{s: s, began: time.Now()}
	var err error
	if p.still, err = stopProcesses(pid); err != nil {
		s.starting.Unlock()
		return nil, ipc.Errorf(ipc.CodeBusy, "%w", err)
	}
	return p, nil
}

// over ends the pause. Further calls do nothing.
func (p *livePause) over() {
	if p.still == nil {
		return
	}
	p.still.Resume()
	p.still, p.took = nil, time.Since(p.began)
	p.s.starting.Unlock()
}
