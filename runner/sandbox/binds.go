package sandbox

import (
	"errors"
	"os"

	"demesne/internal/flock"
	"demesne/rootfs"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
)

// binds is the part of a sandbox that holds the directories which it shares with its caller, seen through its own
// mounts. The goroutine that makes or ends the sandbox uses it, and the results of commands read unsettled after the
// end.
type binds struct {
	*identity
	out       bind
	work      []bind       // /workspace and the mounts, where they are directories of the caller and writable
	granted   string       // name of the record of the grants, if the runner wrote it
	clockSets int          // number of clock changes before the first command
	takeBack  func() error // revokes the sandbox user's access to /out; nil: none was granted
	unsettled error        // why files in out may still grant rights; out is then closed to others
}

// bind is one of these directories.
type bind struct {
	*os.File        // nil: not open
	inside   string // path in the sandbox
	host     string
	whole    bool       // the disk limit bounds all of it
	upper    bool       // it holds the changes of a mount, for demesne apply
	before   grants.Dir // state before the first command
}

// list names the directories that the Spec shares, and opens none.
func (b *binds) list() {
	b.out = bind{inside: dirsOf(&b.spec).Out, host: b.spec.Out}
	if b.spec.Workspace != "" {
		b.work = append(b.work, bind{inside: dirsOf(&b.spec).Workspace, host: b.spec.Workspace})
	}
	for _, m := range b.spec.Mounts {
		if dir := m.Written(); dir != "" {
			b.work = append(b.work, bind{inside: m.Target, host: dir, upper: m.Upper != "", whole: m.Whole})
		}
	}
}

// open opens the directories in the sandbox's tree, for the watchdog and for teardown. user is the account of its
// commands.
func (b *binds) open(tree *rootfs.Tree, own *persistent, user func() (rootfs.Account, error)) (err error) {
	b.list()
	if b.out.File, err = tree.OpenDir(b.out.inside); err != nil {
		return err
	}
	for i := range b.work {
		w := &b.work[i]
		if w.File, err = tree.OpenDir(w.inside); err != nil {
			return err
		}
		if w.upper { // demesne apply waits for the end of the sandbox
			flock.Try(w.File, flock.Shared)
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

// openHost opens the directories where they are, for a sandbox without a tree.
func (b *binds) openHost() (err error) {
	b.list()
	if b.out.File, err = os.Open(b.out.host); err != nil {
		return err
	}
	for i := range b.work {
		if b.work[i].File, err = os.Open(b.work[i].host); err != nil {
			return err
		}
	}
	return nil
}

// look records the state of the directories before anything runs. closed means that the workload could create
// set-user-ID files in /out. It closes /out to other users then, so that such a file is never reachable.
func (b *binds) look(own *persistent, closed bool) (err error) {
	b.clockSets = b.machine.Clock.Set()
	if b.out.before, err = grants.Look(b.out.File); err != nil {
		return err
	}
	shown := b.machine.Boot.RealRoot()
	for i := range b.work {
		w := &b.work[i]
		if w.before, err = grants.Look(w.File); err != nil {
			return err
		}
		w.before.Shown = shown
	}
	b.out.before.Shown = shown && b.out.before.Owner != 0
	own.resume(&b.out.before)
	if own.rebooted {
		b.clockSets--
	}
	if b.out.before.Restore = closed; !closed {
		return nil
	}
	if err := grants.Close(b.out.File); err != nil {
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
	shared := []bind{b.out}
	for _, w := range b.work {
		if b.settles(w) {
			shared = append(shared, w)
		}
	}
	var dirs []grants.Dir
	for _, d := range shared {
		d.before.Path = d.host
		dirs = append(dirs, d.before)
	}
	b.granted, err = grants.Record{Dirs: dirs}.Write(b.machine.Boot.RunDir, b.machine.Boot.Key)
	return err
}

// settles reports whether a directory in work is settled at the end. An image's uid 0 can give files there to another
// user, and a nested sandbox can give them more rights. An upper is always settled: the caller reads and removes it.
func (b *binds) settles(w bind) bool { return b.spec.Rootfs != nil || b.spec.Nesting || w.upper }

// grantOut grants write access to /out to a user other than uid 0, if possible. With real root and an /out of
// another owner, ids inside equal ids on the host. A directory that others can reach is then not opened to one of
// those ids.
func (b *binds) grantOut(who rootfs.Account) {
	if who.UID == 0 || b.spec.Exposed && b.out.before.Shown {
		return
	}
	// On an error the command's own writes fail.
	b.takeBack, _ = rootfs.GrantWrite(b.out.File, who.User)
}

// terms returns the terms on which a directory with the earlier state d is settled.
func (b *binds) terms(d grants.Dir) upper.Terms {
	t := d.Terms(b.machine.Clock.Set() != b.clockSets)
	if b.machine.minimal() { // the sandbox has only the caller's id
		t.Sandbox = func(uint32) bool { return false }
	}
	return t
}

// giveBack returns /out and the directories in work to the caller: it settles and closes them. An /out that could not
// be settled is closed to other users. All processes of the sandbox have ended.
func (b *binds) giveBack() error {
	var errs []error
	for _, w := range b.work {
		if w.File == nil {
			continue
		}
		if b.settles(w) {
			errs = append(errs, upper.Settle(w.File, b.terms(w.before)))
		}
		w.Close()
	}
	if b.out.File == nil {
		return errors.Join(errs...)
	}
	if b.takeBack != nil {
		errs = append(errs, b.takeBack())
	}
	err := upper.Settle(b.out.File, b.terms(b.out.before))
	if errors.Is(err, upper.ErrRights) {
		b.unsettled = err
		errs = append(errs, err, grants.Close(b.out.File))
	} else {
		errs = append(errs, err, b.out.before.Reopen(b.out.File))
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
