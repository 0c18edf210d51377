package launch

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session/cow"
)

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
			Help: "take image, mounts, variables and hooks from the devcontainer.json of a directory (default the working directory), and mount it as configured there; MODE is rw (the default), ro or cow"},
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
	covers, err := client.CoverHome(append(slices.Clone(own), runner.Mount{Source: spec.Workspace, Target: "/workspace"})...)
	if err != nil {
		return err
	}
	spec.Mounts = append(spec.Mounts, covers...)
	for _, m := range own {
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

// gitIdentity returns the variables with which git in the sandbox uses the caller's name and address.
func (o *Options) gitIdentity() (env []string, err error) {
	dir, _ := o.CowWorkspace()
	if o.identity == "no" || o.identity == "" && dir == "" && o.here == "" {
		return nil, nil
	}
	if dir == "" {
		dir = "."
	}
	if _, err := exec.LookPath("git"); err == nil {
		env = identityIn(dir)
	}
	if len(env) == 0 && o.identity == "yes" {
		return nil, text.Hinted(errors.New("--git-identity: git has no name and no address here"), "git config --global user.name NAME sets one")
	}
	return env, nil
}

// CanAskCow returns an error if --cow ask is impossible.
func (o *Options) CanAskCow(background bool) error {
	switch {
	case o.cow != "ask":
		return nil
	case !o.hasCow():
		return text.Hinted(errors.New("--cow: no directory has mode cow"), "--workspace DIR:cow, --mount DIR:cow or --here=cow")
	case o.Key != "" || background:
		return text.Hinted(errors.New("--cow ask: cannot be combined with --key or --background"), "demesne diff lists the changes afterwards")
	}
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return text.Hinted(errors.New("--cow ask: there is no terminal to ask on"), "without it the changes are kept for demesne apply")
	}
	return f.Close()
}
