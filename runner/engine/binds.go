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
	"demesne/runner/api"
	"demesne/runner/given"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// shared is the directories that a sandbox shares with its caller, seen through its own mounts.
type shared struct {
	out      *os.File     // /out
	work     *os.File     // /workspace, if it is a directory of the caller
	was      given.Dir    // state of out before the first command
	workWas  given.Dir    // state of work before the first command
	sets     int          // number of clock changes at that time
	takeBack func() error // revokes the sandbox user's access to /out; nil: none was granted
	unwashed error        // why files in out may still grant rights; out is then closed to others
}

// openShared opens the directories that the sandbox shares with its caller, for the watchdog and for teardown.
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
	if err := s.recordShared(); err != nil {
		return err
	}
	s.lendOut()
	return nil
}

// lookAtShared records the state of the shared directories before anything runs. It closes /out to other users if
// the workload could create set-user-ID files there, so that such a file is never reachable.
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
			Hint: "use a private output directory: with nesting, other users must not reach the files in it",
		}
	}
	return nil
}

// recordShared writes the record of the grants if the client left that to the runner, see [api.RecordsGrants].
func (s *sandbox) recordShared() (err error) {
	if !api.RecordsGrants(s.e.boot.Mode) || s.spec.Granted != "" || s.spec.Out == "" {
		return nil
	}
	dirs := []given.Dir{s.shared.was}
	dirs[0].Path = s.spec.Out
	if s.shared.work != nil && s.settlesWork() {
		dirs = append(dirs, s.shared.workWas)
		dirs[1].Path = s.spec.Workspace
	}
	s.spec.Granted, err = given.Record{Dirs: dirs}.Write(s.e.boot.RunDir, s.e.boot.Key)
	return err
}

// settlesWork reports whether /workspace is settled at the end. An image's uid 0 can give files there to another
// user, and a nested sandbox can give them more rights.
func (s *sandbox) settlesWork() bool { return s.spec.Rootfs != nil || s.spec.Nesting }

// lendOut grants write access to /out to a user other than uid 0, if possible. With real root and an /out of
// another owner, ids inside equal ids on the host. A directory that others can reach is then not opened to one of
// those ids.
func (s *sandbox) lendOut() {
	who, err := s.runsAs(nil)
	if err != nil || who.UID == 0 || s.spec.Exposed && s.shared.was.Shown {
		return
	}
	// On an error the command's own writes fail.
	s.shared.takeBack, _ = rootfs.GrantWrite(s.shared.out, who.User)
}

// giveBack returns /out and /workspace to the caller. All processes of the sandbox have ended.
func (s *sandbox) giveBack() {
	err := s.shared.giveBack(s.terms, s.settlesWork())
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
	}
	if s.shared.unwashed == nil {
		s.kept.unsettled = nil
	}
}

// terms returns the terms on which a directory with the earlier state d is settled.
func (s *sandbox) terms(d given.Dir) upper.Terms {
	t := d.Terms(s.e.clock.Set() != s.shared.sets)
	if s.e.boot.Mode == userns.ModeMinimal { // the sandbox has only the caller's id
		t.Sandbox = func(uint32) bool { return false }
	}
	return t
}

// giveBack settles and closes the directories. A directory that could not be settled is closed to other users.
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

// spoil makes a result report that /out could not be settled. It is pure.
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

// tidyFor bounds how long the end of a sandbox waits for the reaper.
const tidyFor = 2 * time.Second

// release ends the grants of the sandbox. The reaper, which has the caller's rights, removes sockets that the
// runner may not remove.
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
