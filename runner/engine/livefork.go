package engine

import (
	"math"
	"os"
	"time"

	"demesne/rootfs"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pause"
	"demesne/runner/store"
)

// forkRunning copies what s wrote. Its processes hold still twice: for a moment, and for as long as it takes to look at
// what they changed in between.
//
// What s wrote cannot become a layer below both, as it does where nothing runs. The layers of an overlay are those that it was mounted
// with (Documentation/filesystems/overlayfs.rst: what is below one that is mounted must not be changed). A new overlay would be another
// file system: the roots, directories, mappings and files that the processes have open would stay in the old one, and Landlock's rules
// with them, which hold for its inodes.
func (s *sandbox) forkRunning(d *store.Store, t api.ForkRequest) (runner.Forked, error) {
	if err := admitBases(s.id, s.kept.base); err != nil {
		return runner.Forked{}, err
	}
	s.mu.Lock()
	s.used()
	s.mu.Unlock()
	tree, err := s.kept.box.OpenTree()
	if err != nil {
		return runner.Forked{}, err
	}
	defer tree.Close()
	upperDir, err := rootfs.KeptUpper(tree)
	if err != nil {
		return runner.Forked{}, err
	}
	defer upperDir.Close()
	held, err := s.kept.box.Hold(s.kept.base)
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
		return runner.Forked{}, ipc.Errorf(codeOf(err), "fork sandbox %q: %w", s.id, err)
	}
	defer release()
	f, err := s.e.forked(d, store.Record{Info: s.info(), Map: s.e.idMap(), Secrets: s.kept.secrets, Base: append(s.kept.base[:len(s.kept.base):len(s.kept.base)], base)}, t)
	did.ID, did.Unpublished = f.ID, f.Unpublished
	return did, err
}

// copyRunning makes the copy. Where it cannot be told what is mapped, all of it is made while the processes hold still.
func (s *sandbox) copyRunning(upperDir, kept *os.File) (did runner.Forked, err error) {
	most := s.spec.Limits.Disk
	if most <= 0 {
		most = math.MaxInt64
	}
	twin, err := upper.NewLiveCopy(upperDir, kept, most)
	if err != nil {
		return did, err
	}
	defer twin.Close()
	first, err := s.pauseLive()
	if err != nil {
		return did, err
	}
	defer first.over()
	last := first
	open, unclear := pause.Mapped(s.pid)
	since := time.Now()
	if unclear == nil && first.still.Held() {
		first.over()
		twin.Ahead(since, open)
		if last, err = s.pauseLive(); err != nil {
			return did, err
		}
		defer last.over()
	}
	err = twin.Settle()
	if err == nil && !last.still.Held() {
		err = ipc.Errorf(ipc.CodeBusy, "%w", pause.ErrRestless)
	}
	if lost := s.whole(); lost != nil {
		err = lost
	}
	last.over()
	did.Copied, did.Still = twin.Bytes(), runner.Duration(first.took)
	if last != first {
		did.Still += runner.Duration(last.took)
	}
	return did, err
}

// whole says whether the files of s are still all there: who removes it begins with saying that it ends.
func (s *sandbox) whole() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return s.endedErr("copy files of sandbox")
	}
	return nil
}

// livePause is a time in which the processes of a sandbox hold still, and no command begins.
type livePause struct {
	s     *sandbox
	still *pause.Paused // nil: it is over
	began time.Time
	took  time.Duration // when it is over
}

// livePause begins one.
func (s *sandbox) pauseLive() (*livePause, error) {
	s.starting.Lock()
	p := &livePause{s: s, began: time.Now()}
	var err error
	if p.still, err = pause.Pause(s.pid); err != nil {
		s.starting.Unlock()
		return nil, ipc.Errorf(ipc.CodeBusy, "%w", err)
	}
	return p, nil
}

// done ends it. It may be called again.
func (p *livePause) over() {
	if p.still == nil {
		return
	}
	p.still.Thaw()
	p.still, p.took = nil, time.Since(p.began)
	p.s.starting.Unlock()
}
