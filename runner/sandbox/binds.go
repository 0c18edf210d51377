package sandbox

import (
	"errors"
	"os"
	"path/filepath"

	"demesne/rootfs"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// binds is the part of a sandbox that holds the directories which it shares with its caller, seen through its own
// mounts. The goroutine that makes or ends the sandbox uses it, and the results of commands read unsettled after the
// end.
type binds struct {
	*identity
	out        *os.File     // /out
	work       *os.File     // /workspace, if it is a directory of the caller
	outBefore  grants.Dir   // state of out before the first command
	workBefore grants.Dir   // state of work before the first command
	granted    string       // name of the record of the grants, if the runner wrote it
	clockSets  int          // number of clock changes at that time
	takeBack   func() error // revokes the sandbox user's access to /out; nil: none was granted
	unsettled  error        // why files in out may still grant rights; out is then closed to others
}

// open opens the directories below root, the tree of the sandbox, for the watchdog and for teardown. user is the
// account of its commands.
func (b *binds) open(root string, own *persistent, user func() (rootfs.Account, error)) (err error) {
	if b.out, err = os.Open(filepath.Join(root, "out")); err != nil {
		return err
	}
	if b.spec.Workspace != "" {
		if b.work, err = os.Open(filepath.Join(root, "workspace")); err != nil {
			return err
		}
	}
	if err := b.look(own, b.spec.Nesting && b.spec.Exposed); err != nil {
		return err
	}
	if err := b.record(); err != nil {
		return err
	}
	if who, err := user(); err == nil {
		b.grantOut(who)
	}
	return nil
}

// look records the state of the directories before anything runs. closed means that the workload could create
// set-user-ID files in /out. It closes /out to other users then, so that such a file is never reachable.
func (b *binds) look(own *persistent, closed bool) (err error) {
	b.clockSets = b.machine.Clock.Set()
	if b.outBefore, err = grants.Look(b.out); err != nil {
		return err
	}
	if b.work != nil {
		if b.workBefore, err = grants.Look(b.work); err != nil {
			return err
		}
	}
	b.workBefore.Shown = b.machine.Boot.Mode == userns.ModeRoot
	b.outBefore.Shown = b.workBefore.Shown && b.outBefore.Owner != 0
	own.resume(&b.outBefore)
	if own.rebooted {
		b.clockSets--
	}
	if b.outBefore.Restore = closed; !closed {
		return nil
	}
	if err := grants.Close(b.out); err != nil {
		return &ipc.Error{
			Code: ipc.CodeRequirement, Text: "nest sandboxes: " + err.Error(),
			Hint: "use a private output directory: with nesting, other users must not reach the files in it",
		}
	}
	return nil
}

// record writes the record of the grants if the client left that to the runner, see [api.RecordsGrants].
func (b *binds) record() (err error) {
	if !api.RecordsGrants(b.machine.Boot.Mode) || b.spec.Granted != "" || b.spec.Out == "" {
		return nil
	}
	dirs := []grants.Dir{b.outBefore}
	dirs[0].Path = b.spec.Out
	if b.work != nil && b.settlesWork() {
		dirs = append(dirs, b.workBefore)
		dirs[1].Path = b.spec.Workspace
	}
	b.granted, err = grants.Record{Dirs: dirs}.Write(b.machine.Boot.RunDir, b.machine.Boot.Key)
	return err
}

// settlesWork reports whether /workspace is settled at the end. An image's uid 0 can give files there to another
// user, and a nested sandbox can give them more rights.
func (b *binds) settlesWork() bool { return b.spec.Rootfs != nil || b.spec.Nesting }

// grantOut grants write access to /out to a user other than uid 0, if possible. With real root and an /out of
// another owner, ids inside equal ids on the host. A directory that others can reach is then not opened to one of
// those ids.
func (b *binds) grantOut(who rootfs.Account) {
	if who.UID == 0 || b.spec.Exposed && b.outBefore.Shown {
		return
	}
	// On an error the command's own writes fail.
	b.takeBack, _ = rootfs.GrantWrite(b.out, who.User)
}

// terms returns the terms on which a directory with the earlier state d is settled.
func (b *binds) terms(d grants.Dir) upper.Terms {
	t := d.Terms(b.machine.Clock.Set() != b.clockSets)
	if b.machine.minimal() { // the sandbox has only the caller's id
		t.Sandbox = func(uint32) bool { return false }
	}
	return t
}

// giveBack returns /out and /workspace to the caller: it settles and closes them. A directory that could not be
// settled is closed to other users. All processes of the sandbox have ended.
func (b *binds) giveBack() error {
	var errs []error
	if b.work != nil {
		if b.settlesWork() {
			errs = append(errs, upper.Settle(b.work, b.terms(b.workBefore)))
		}
		b.work.Close()
	}
	if b.out == nil {
		return errors.Join(errs...)
	}
	if b.takeBack != nil {
		errs = append(errs, b.takeBack())
	}
	err := upper.Settle(b.out, b.terms(b.outBefore))
	if errors.Is(err, upper.ErrRights) {
		b.unsettled = err
		errs = append(errs, err, grants.Close(b.out))
	} else {
		errs = append(errs, err, b.outBefore.Reopen(b.out))
	}
	b.out.Close()
	return errors.Join(errs...)
}

// spoil makes a result report that /out could not be settled. It is pure.
func spoil(r *runner.Result, unsettled error) {
	if unsettled == nil {
		return
	}
	r.Reason, r.ExitCode = runner.Lost, 125
	if errors.Is(unsettled, upper.ErrTooMany) {
		r.Reason, r.ExitCode = runner.DiskFull, 137
	}
	r.Detail = "the output directory is closed to other users: " + unsettled.Error()
}
