// Package mounts shows directories of this machine to sandboxes, at paths of their own.
//
//	mounts.go, mountarg.go, caches.go, toolchains.go    flags → the mounts and variables of a sandbox
//	autorun.go, cow.go                                  reports at the end, about files and changes
//
// It writes to this machine only where a flag says: a cache, and the record of changes that are kept apart. Read-only mounts
// protect files that programs of this machine would execute later (package upper knows them), as far as the kernel keeps a
// mount read-only.
package mounts

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
	"demesne/internal/git"
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

// Options name the directories of one command line.
type Options struct {
	Workspace string // of --workspace

	mounts     []string
	here       string // rw, ro or cow; empty: not requested
	caches     []string
	toolchains []string
	identity   string // yes or no; empty: not requested
	cow        string // ask or keep; empty: keep

	more  []Mount // that no flag names
	dir   string  // where commands start, unless --here says it
	tmpfs []runner.Tmpfs
}

// Flags returns the flags of run and create.
func (o *Options) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "mount", Arg: "SRC[:DST][:MODE]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.mounts, app.CheckInput),
			Help: "show a file or directory at DST (default its own path); MODE is ro (the default), rw, or cow: changes are kept apart, see demesne apply"},
		{Group: app.GroupSandbox, Long: "here", Arg: "MODE", Optional: true, Words: hereModes, Set: optionalWord(&o.here, hereModes),
			Help: "mount the working directory at its own path, and start in it; MODE is rw (the default), ro or cow"},
		{Group: app.GroupSandbox, Long: "cache", Arg: "NAME", Repeat: true, Words: cacheNames(), Set: cmdline.List(&o.caches, func(s string) error { return cmdline.OneOf(s, cacheNames()) }),
			Help: "share downloads with all sandboxes that name this cache: npm, pip, go or cargo; this machine's own caches stay apart"},
		{Group: app.GroupSandbox, Long: "git-identity", Arg: "yes|no", Optional: true, Words: yesNo, Set: optionalWord(&o.identity, yesNo),
			Help: "let git in the sandbox use your name and email (default with --workspace and --here)"},
	}
}

// Add adds mounts that no flag names, and the directory where commands start without --here.
func (o *Options) Add(more []Mount, dir string, tmpfs []string) {
	o.more, o.dir = more, dir
	for _, t := range tmpfs {
		o.tmpfs = append(o.tmpfs, runner.Tmpfs{Target: t})
	}
}

// Targets returns the paths at which the values of --mount appear.
func (o *Options) Targets() (paths []string, err error) {
	all, err := parseMounts(o.mounts)
	for _, m := range all {
		paths = append(paths, m.Target)
	}
	return paths, err
}

// Check returns an error if a flag names a mount that is not possible.
func (o *Options) Check() error {
	_, _, err := o.parsed()
	return err
}

// parsed returns the mounts without caches. dir is the directory where commands start.
func (o *Options) parsed() (all []Mount, dir string, err error) {
	args := slices.Clone(o.mounts)
	if o.here != "" {
		if dir, err = os.Getwd(); err != nil {
			return nil, "", fmt.Errorf("find working directory: %w", fsutil.Reason(err))
		}
		args = append(args, dir+":"+o.here)
	}
	if all, err = parseMounts(args); err != nil {
		return nil, dir, err
	}
	return byDepth(slices.Concat(o.more, all)), cmp.Or(dir, o.dir), nil
}

// Shown returns the mounts before their changes are kept apart, as far as they are possible.
func (o *Options) Shown() (all []runner.Mount) {
	mounts, _, _ := o.parsed()
	if dir, cow := o.cowWorkspace(); cow {
		if m, err := cowWorkspaceMount(dir); err == nil {
			mounts = append(mounts, m)
		}
	}
	for _, m := range mounts {
		all = append(all, m.Mount)
	}
	return all
}

// Place adds the mounts to spec, with read-only ones over what programs of this machine would execute. It makes the
// directory for the changes of mounts with mode cow.
func (o *Options) Place(a *app.App, spec *runner.Spec) (*Placed, error) {
	p := &Placed{app: a, key: spec.Key, name: spec.Name, ask: o.cow == "ask", watch: Watch{Verb: a.Verb}}
	mounts, dir, err := o.parsed()
	if err != nil {
		return nil, err
	}
	spec.Defaults.Dir = dir
	spec.Tmpfs = append(spec.Tmpfs, o.tmpfs...)
	if path, cow := o.cowWorkspace(); cow {
		m, err := cowWorkspaceMount(path)
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
	if err := errors.Join(p.protect(spec), addCaches(spec, o.caches), o.showToolchains(a, spec)); err != nil {
		p.changes.Undo()
		return nil, err
	}
	return p, nil
}

// cowWorkspace returns the directory of --workspace, and whether its mode is cow.
func (o *Options) cowWorkspace() (dir string, cow bool) {
	dir, mode := SplitMode(o.Workspace, "cow")
	return dir, mode != ""
}

// hasCow reports whether a flag keeps changes apart.
func (o *Options) hasCow() bool {
	mounts, _, _ := o.parsed()
	_, cow := o.cowWorkspace()
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
	dir, _ := o.cowWorkspace()
	if o.identity == "no" || o.identity == "" && dir == "" && o.here == "" {
		return nil, nil
	}
	if dir == "" {
		dir = "."
	}
	if _, err := exec.LookPath("git"); err == nil {
		env = git.Identity(git.Author(dir))
	}
	if len(env) == 0 && o.identity == "yes" {
		return nil, text.Hinted(errors.New("--git-identity: git has no name and no address here"), "git config --global user.name NAME sets one")
	}
	return env, nil
}

// CanAsk returns an error if --cow ask is impossible. later means that the sandbox outlives this process.
func (o *Options) CanAsk(later bool) error {
	switch {
	case o.cow != "ask":
		return nil
	case !o.hasCow():
		return text.Hinted(errors.New("--cow: no directory has mode cow"), "--workspace DIR:cow, --mount DIR:cow or --here=cow")
	case later:
		return text.Hinted(errors.New("--cow ask: cannot be combined with --key or --background"), "demesne diff lists the changes afterwards")
	}
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return text.Hinted(errors.New("--cow ask: there is no terminal to ask on"), "without it the changes are kept for demesne apply")
	}
	return f.Close()
}
