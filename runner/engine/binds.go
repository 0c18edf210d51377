package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"demesne/rootfs"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/given"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// shared is what a sandbox shares with its caller, through its own mounts.
type shared struct {
	out      *os.File     // /out
	work     *os.File     // /workspace, if it is the caller's
	was      given.Dir    // out, before anything ran
	workWas  given.Dir    // work, likewise
	sets     int          // how often the clock had been set by then
	takeBack func() error // lets /out be the caller's alone again; nil: it is
	unwashed error        // why what is in it may still have rights; it is closed to others then
}

// openShared opens what the sandbox shares with its caller, for the watch and for the end.
func (s *sandbox) openShared() (err error) {
	h := &s.shared
	if h.out, err = os.Open(filepath.Join(s.tree.Root, "out")); err != nil {
		return err
	}
	if s.spec.Workspace != "" {
		if h.work, err = os.Open(filepath.Join(s.tree.Root, "workspace")); err != nil {
			return err
		}
	}
	if err := s.lookAtShared(); err != nil {
		return err
	}
	s.lendOut()
	return nil
}

// lookAtShared notes how what is shared is before anything runs, and closes /out to other users where the workload could make
// set-user-ID files: they are not reached at any moment then.
func (s *sandbox) lookAtShared() (err error) {
	h := &s.shared
	h.sets = s.e.clock.Set()
	if h.was, err = given.Look(h.out); err != nil {
		return err
	}
	if h.work != nil {
		if h.workWas, err = given.Look(h.work); err != nil {
			return err
		}
	}
	h.workWas.Shown = s.e.boot.Mode == userns.ModeRoot
	h.was.Shown = h.workWas.Shown && h.was.Owner != 0
	s.kept.resume(&h.was)
	if s.kept.rebooted {
		h.sets--
	}
	if h.was.Restore = s.spec.Nesting && s.spec.Exposed && s.tree != nil; !h.was.Restore {
		return nil
	}
	if err := given.Close(h.out); err != nil {
		return &ipc.Error{
			Code: ipc.CodeRequirement, Text: "nest sandboxes: " + err.Error(),
			Hint: "name an output directory of your own: with nesting, others must not reach what is made there",
		}
	}
	return nil
}

// lendOut lets a user that is not uid 0 write to /out, if that can be. Where a real root's /out is not root's own, ids
// are on the host what they are inside: a directory that others can reach is not lent to one of them.
func (s *sandbox) lendOut() {
	who, err := s.runsAs(nil)
	if err != nil || who.UID == 0 || s.spec.Exposed && s.shared.was.Shown {
		return
	}
	// On an error the command will be told.
	s.shared.takeBack, _ = rootfs.GrantWrite(s.shared.out, who.User)
}

// giveBack makes /out and /workspace the caller's: no process of the sandbox is alive any more.
func (s *sandbox) giveBack() {
	// The uid 0 of an image can make another user's of what is in /workspace, and nesting what has more rights.
	err := s.shared.giveBack(s.terms, s.spec.Rootfs != nil || s.spec.Nesting)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
	}
	if s.shared.unwashed == nil {
		s.kept.unsettled = nil
	}
}

// terms are what a directory is settled by that was d.
func (s *sandbox) terms(d given.Dir) upper.Terms {
	t := d.Terms(s.e.clock.Set() != s.shared.sets)
	if s.e.boot.Mode == userns.ModeMinimal { // it has the caller's id and no other
		t.Sandbox = func(uint32) bool { return false }
	}
	return t
}

// giveBack closes what there is. A directory that could not be settled is closed to others.
func (h *shared) giveBack(terms func(given.Dir) upper.Terms, work bool) error {
	var errs []error
	if h.work != nil {
		if work {
			errs = append(errs, upper.Settle(h.work, terms(h.workWas)))
		}
		h.work.Close()
	}
	if h.out == nil {
		return errors.Join(errs...)
	}
	if h.takeBack != nil {
		errs = append(errs, h.takeBack())
	}
	err := upper.Settle(h.out, terms(h.was))
	if errors.Is(err, upper.ErrRights) {
		h.unwashed = err
		errs = append(errs, err, given.Close(h.out))
	} else {
		errs = append(errs, err, h.was.Reopen(h.out))
	}
	h.out.Close()
	return errors.Join(errs...)
}

// spoil makes a result say that /out could not be settled. It is pure.
func spoil(r *runner.Result, unwashed error) {
	if unwashed == nil {
		return
	}
	r.Reason, r.ExitCode = runner.Lost, 125
	if errors.Is(unwashed, upper.ErrTooMany) {
		r.Reason, r.ExitCode = runner.DiskFull, 137
	}
	r.Detail = "the output directory is closed to other users: " + unwashed.Error()
}

// tidyFor bounds how long a sandbox's end waits for the reaper.
const tidyFor = 2 * time.Second

// release says that nothing is given to the sandbox any more. Sockets that we may not remove the reaper does, which has
// the caller's rights.
func (s *sandbox) release() {
	run, name := s.e.boot.RunDir, s.spec.Granted
	if name == "" {
		return
	}
	if s.net.socketsLeft() && given.Over(run, name) == nil {
		s.e.askReaper()
		for end := time.Now().Add(tidyFor); given.Pending(run, name) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return
	}
	given.Remove(run, name)
}
