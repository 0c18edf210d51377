package launch

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/session"
	"demesne/session/cow"
)

// mountOptions name directories of this machine that a sandbox has at paths of its own.
type mountOptions struct {
	mounts   []string
	here     string // rw, ro or cow; empty: not requested
	caches   []string
	identity string // yes or no; empty: not requested

	Asked *string       // --devcontainer; nil: not requested
	dev   *devContainer // that was read
}

var hereModes = []string{"rw", "ro", "cow"}

var yesNo = []string{"yes", "no"}

// optionalWord returns a setter for a flag whose value may be left out. It then is the first of words.
func optionalWord(to *string, words []string) func(string) error {
	return func(s string) error { return cmdline.Word(to, words)(cmp.Or(s, words[0])) }
}

func (o *mountOptions) MountFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "mount", Arg: "SRC[:DST][:MODE]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.mounts, CheckInput),
			Help: "show a file or directory at DST (default its own path); MODE is ro (the default), rw, or cow: changes are kept apart, see demesne apply"},
		{Group: app.GroupSandbox, Long: "here", Arg: "MODE", Optional: true, Words: hereModes, Set: optionalWord(&o.here, hereModes),
			Help: "mount the working directory at its own path, and start in it; MODE is rw (the default), ro or cow"},
		{Group: app.GroupSandbox, Long: "cache", Arg: "NAME", Repeat: true, Words: cacheNames(), Set: cmdline.List(&o.caches, func(s string) error { return cmdline.OneOf(s, cacheNames()) }),
			Help: "share downloads with all sandboxes that name this cache: npm, pip, go or cargo; this machine's own caches stay apart"},
		{Group: app.GroupSandbox, Long: "git-identity", Arg: "yes|no", Optional: true, Words: yesNo, Set: optionalWord(&o.identity, yesNo),
			Help: "let git in the sandbox use your name and email (default with --workspace and --here)"},
		{Group: app.GroupSandbox, Long: "devcontainer", Arg: "DIR[:MODE]", Optional: true, Complete: cmdline.Directory, Set: o.SetDevcontainer,
			Help: "take image, mounts, variables and hooks from the devcontainer.json of a directory (default the working directory), and mount it as that file says; MODE is rw (the default), ro or cow"},
	}
}

// Parsed returns the mounts that the flags ask for, without caches. dir is the working directory, with the caller's
// spelling, if --here is given.
func (o *mountOptions) Parsed() (all []Mount, dir string, err error) {
	args := slices.Clone(o.mounts)
	if o.here != "" {
		if dir, err = os.Getwd(); err != nil {
			return nil, "", fmt.Errorf("find working directory: %w", fsutil.Reason(err))
		}
		args = append(args, dir+":"+o.here)
	}
	all, err = parseMounts(args)
	if o.dev != nil {
		all = byDepth(slices.Concat(o.dev.mounts, all))
		dir = cmp.Or(dir, o.dev.plan.Dir)
	}
	return all, dir, err
}

// Placed are the mounts of one sandbox, with what must be told at its end.
type Placed struct {
	o       *Options
	watch   Watch
	changes *cow.Set // nil: no mount has mode cow
}

// Place adds the mounts to spec, with read-only ones over what programs of this machine would execute. It makes the
// directory for the changes of mounts with mode cow.
func (o *Options) Place(spec *runner.Spec) (*Placed, error) {
	p := &Placed{o: o, watch: Watch{Verb: o.Verb}}
	mounts, dir, err := o.Parsed()
	if err != nil {
		return nil, err
	}
	spec.Defaults.Dir = dir
	if o.dev != nil {
		for _, t := range o.dev.plan.Tmpfs {
			spec.Tmpfs = append(spec.Tmpfs, runner.Tmpfs{Target: t})
		}
	}
	if path, cow := o.CowWorkspace(); cow {
		m, err := CowWorkspaceMount(path)
		if err != nil {
			return nil, err
		}
		mounts, spec.Workspace = append(mounts, m), ""
		spec.Defaults.Dir = cmp.Or(dir, m.Target)
	}
	if spec.Defaults.Env, err = o.gitIdentity(); err != nil {
		return nil, err
	}
	var apart []*runner.Mount
	for i := range mounts {
		if mounts[i].COW {
			apart = append(apart, &mounts[i].Mount)
		}
	}
	if p.changes, err = cow.New(apart); err != nil {
		return nil, err
	}
	for _, m := range mounts {
		spec.Mounts = append(spec.Mounts, m.Mount)
	}
	if err := errors.Join(p.protect(spec), addCaches(spec, o.caches)); err != nil {
		p.changes.Undo()
		return nil, err
	}
	return p, nil
}

// CowWorkspace returns the directory of --workspace, and whether its mode is cow.
func (o *Options) CowWorkspace() (dir string, cow bool) {
	dir, mode := splitMode(o.workspace, "cow")
	return dir, mode != ""
}

// hasCow reports whether a flag keeps changes apart.
func (o *Options) hasCow() bool {
	mounts, _, _ := o.Parsed()
	_, cow := o.CowWorkspace()
	return cow || slices.ContainsFunc(mounts, func(m Mount) bool { return m.COW })
}

// protect adds the read-only mounts. With nesting they would not hold, so the files are only named at the end.
func (p *Placed) protect(spec *runner.Spec) error {
	own := spec.Mounts
	for _, m := range own {
		covers, err := coverHome(m)
		if err != nil {
			return err
		}
		spec.Mounts = append(spec.Mounts, covers...)
		if m.Written() != m.Source {
			continue
		}
		guards, err := p.watch.Protect(m, own)
		if err != nil {
			return err
		}
		if !spec.Nesting {
			spec.Mounts = append(spec.Mounts, guards...)
		}
	}
	return nil
}

// made records the sandbox that has the mounts.
func (p *Placed) made(b *session.Sandbox) {
	if p == nil || b.Existing {
		return // an existing sandbox of the key has its own
	}
	if err := p.changes.Made(b.ID, p.o.Name); err != nil {
		p.o.Say(fmt.Sprintf("%s: record changes: %v", p.o.Verb, err))
	}
}

// Undo removes what no sandbox got.
func (p *Placed) Undo() {
	if p != nil {
		p.changes.Undo()
	}
}

// tell names the files that programs of this machine would execute, and sums up the changes that are kept apart.
func (p *Placed) tell() {
	if p == nil {
		return
	}
	p.watch.Tell(&p.o.Console)
	if p.changes != nil && p.changes.Sandbox != "" {
		p.tellChanges()
	}
}

// Recorded returns callbacks that record the sandbox, too.
func (p *Placed) Recorded(cb session.Callbacks) session.Callbacks {
	tell := cb.Made
	cb.Made = func(b *session.Sandbox) {
		p.made(b)
		tell(b)
	}
	return cb
}
