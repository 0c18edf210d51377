package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"demesne/netns"
	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/network"
)

// files is the part of a sandbox that holds its files: the tree, and the parts that the tree is mounted from. The
// goroutine that makes the sandbox sets it, and its commands read it afterwards.
type files struct {
	*identity
	tree       *rootfs.Tree // nil: the sandbox has neither namespaces nor an image
	dirs       container.Dirs
	placed     bool     // /in, /out and /workspace of the machine lead to dirs, see takePlaces
	unplaced   error    // why they do not
	scratch    *os.File // what the sandbox writes that is not in binds, without a mount namespace
	persistent persistent
	image      image
	binds      binds
	delivery   *delivery
}

var inside = container.Dirs{In: "/in", Out: "/out", Workspace: "/workspace", Home: "/root", Tmp: "/tmp"}

// dirsOf returns the directories of a sandbox in its own tree.
func dirsOf(spec *runner.Spec) container.Dirs {
	d := inside
	if spec.Rootfs != nil && spec.Rootfs.Aside {
		d.In, d.Out, d.Workspace = runner.AsideDir+d.In, runner.AsideDir+d.Out, runner.AsideDir+d.Workspace
	}
	return d
}

func newFiles(s *state) files {
	i := s.identity
	return files{identity: i, dirs: dirsOf(&i.spec), persistent: persistent{state: s}, image: image{identity: i}, binds: binds{identity: i}, delivery: &delivery{}}
}

// mount mounts the tree and opens the directories that teardown reads.
func (f *files) mount(m *ipc.Message, trust *rootfs.Trust) (err error) {
	dir := filepath.Join(f.machine.Dir, f.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	f.undoLate(func() { os.Remove(dir) })
	l, err := f.layout(dir, m, trust)
	if err != nil {
		return err
	}
	release, err := f.persistent.layer(&l)
	if err != nil {
		return err
	}
	defer release()
	if f.spec.Rootfs != nil {
		f.tree, err = f.image.mount(l, m)
	} else {
		f.tree, err = rootfs.MountHost(l)
	}
	if err != nil {
		return err
	}
	f.undoLate(func() { f.tree.Unmount() })
	if err := f.persistent.mounted(l, f.tree); err != nil {
		return err
	}
	if f.image.scratch != "" {
		if err := f.image.watchScratch(); err != nil {
			return err
		}
	}
	f.undo.add(f.giveBack)
	if f.prepared {
		return nil
	}
	return f.openBinds()
}

// layout translates the Spec, and the directories that came with m, into the tree to be mounted in dir.
func (f *files) layout(dir string, m *ipc.Message, trust *rootfs.Trust) (rootfs.Layout, error) {
	init, err := f.machine.initProgram(m)
	if err != nil {
		return rootfs.Layout{}, err
	}
	l := rootfs.Layout{
		Dir: dir, Size: f.spec.Limits.Disk, Inodes: inodes(f.spec.Limits.Disk), Hostname: f.spec.Hostname,
		NameServer: network.NameServer(f.egress), Trust: trust,
		Init: init, Out: source(m, api.SourceOut, f.spec.Out),
	}
	l.Hosts, l.Tmpfs = interior(&f.spec)
	if f.spec.Rootfs != nil && f.spec.Rootfs.Aside {
		l.Aside = runner.AsideDir[1:]
	}
	if u := f.spec.User; u != nil {
		l.User = rootfs.User{UID: u.UID, GID: u.GID}
	}
	if f.spec.Workspace != "" {
		l.Workspace = source(m, api.SourceWorkspace, f.spec.Workspace)
	}
	for i, b := range f.spec.Mounts {
		from := source(m, api.SourceMount(i), b.Source)
		from.Socket = b.Socket
		own := rootfs.Mount{Source: from, Target: b.Target, ReadOnly: b.ReadOnly}
		if b.Upper != "" {
			own.Upper = source(m, api.SourceUpper(i), b.Upper)
		}
		l.Mounts = append(l.Mounts, own)
	}
	for i, in := range f.spec.Inputs {
		from := source(m, api.SourceInput(i), in.Path)
		from.Socket = in.Socket
		l.Inputs = append(l.Inputs, rootfs.Bind{Name: in.Name, Source: from})
	}
	return l, nil
}

// inodes bounds the number of inodes of a tree. Empty files take kernel memory that size= does not count.
func inodes(bytes int64) int64 {
	const most = 256 << 10
	if bytes <= 0 {
		return most
	}
	return min(max(bytes/4096, 1024), most)
}

// complete mounts the caller's directories, which came with m, in the tree of a prepared sandbox.
func (f *files) complete(m *ipc.Message) error {
	if err := f.tree.Complete(source(m, api.SourceOut, f.spec.Out), source(m, api.SourceWorkspace, f.spec.Workspace)); err != nil {
		return err
	}
	return f.openBinds()
}

func (f *files) openBinds() error {
	return f.binds.open(f.tree, &f.persistent, func() (rootfs.Account, error) { return f.runsAs(nil) })
}

// giveBack returns the caller's directories. All processes of the sandbox have ended.
func (f *files) giveBack() {
	f.deliver()
	if err := f.binds.giveBack(); err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", f.id, err)
	}
	if f.binds.unsettled == nil {
		f.persistent.unsettled = nil
	}
}

// detach unmounts the runner's own view of the tree. PID 1 has its copy, and the runner's would be copied into each
// later sandbox. Unmounting waits for an RCU grace period of the whole machine, so it runs beside PID 1's start.
func (f *files) detach() {
	detached := make(chan struct{})
	go func() { f.tree.Detach(); close(detached) }()
	f.undoLate(func() { <-detached })
}

// watched returns what the watchdog must measure, because no kernel mechanism may enforce it.
func (f *files) watched() limits.Watched {
	w := limits.Watched{PIDs: f.machine.minimal() || f.spec.Rootfs != nil && !f.machine.Boot.OneID()}
	for _, d := range append([]bind{f.binds.out}, f.binds.work...) {
		if d.File != nil {
			w.Dirs = append(w.Dirs, limits.Written{Dir: d.File, Name: d.inside, Upper: d.upper, Whole: d.whole})
		}
	}
	for _, d := range []limits.Written{{Dir: f.image.upper, Upper: true}, {Dir: f.persistent.upper, Upper: true, Whole: true}, {Dir: f.scratch, Name: "/scratch", Whole: f.tree == nil}} {
		if d.Dir != nil {
			w.Dirs = append(w.Dirs, d)
		}
	}
	return w
}

// certFile returns the file of certificates for variables that name one, or "".
func (f *files) certFile() string {
	if f.tree == nil {
		return f.dirs.Certs
	}
	return f.tree.CertFile
}

// runsAs returns the account that a command runs as: asked, or the sandbox's user if asked is nil.
func (f *files) runsAs(asked *runner.User) (rootfs.Account, error) {
	b := f.machine.Boot
	if asked != nil && (asked.UID >= b.UIDs() || asked.GID >= b.GIDs()) {
		return rootfs.Account{}, ipc.Errorf(ipc.CodeInvalid, "set user %d:%d: not in the id map", asked.UID, asked.GID)
	}
	if f.spec.Rootfs != nil {
		if asked == nil {
			return f.tree.Account, nil
		}
		return f.tree.Users.Lookup(numeric(asked))
	}
	u := cmp.Or(asked, f.spec.User, &runner.User{})
	a := rootfs.Account{User: rootfs.User(*u), Home: f.dirs.Home}
	if u.UID != 0 {
		a.Home = f.dirs.Workspace
	}
	return a, nil
}

// mounting is a tree that is being mounted while PID 1 starts. PID 1 waits for it when it needs it, see
// [container.Inside].
type mounting struct {
	done chan struct{} // closed when err and took are set
	err  error
	took time.Duration

	shown sync.Once
}

// mountAsync starts mounting the tree of a sandbox with this egress, if any.
func (f *files) mountAsync(m *ipc.Message, out *network.Egress) *mounting {
	t := &mounting{done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(t.done)
		var trust *rootfs.Trust
		if trust, t.err = out.Trust(f.spec.Rootfs != nil); t.err == nil {
			t.err = f.mount(m, trust)
		}
		t.took = time.Since(began)
	}()
	return t
}

func (t *mounting) wait() error {
	<-t.done
	return t.err
}

// show makes the tree appear where PID 1 expects it. Further calls do nothing.
func (f *files) show(t *mounting, ns *netns.NS) error {
	if err := t.wait(); err != nil {
		return err
	}
	t.shown.Do(func() {
		if ns.Sysfs != nil {
			t.err = f.tree.MountSys(ns.Sysfs)
		}
		if t.err == nil {
			t.err = f.tree.Show(f.root(), f.dev())
		}
	})
	return t.err
}

// root returns the directory where PID 1 finds its tree.
func (f *files) root() string { return filepath.Join(f.machine.shown(), f.id, "root") }

func (f *files) dev() string { return filepath.Join(f.machine.shown(), f.id, "dev") }

// makePlace makes the directories root and dev.
func (f *files) makePlace() error {
	for _, dir := range []string{filepath.Dir(f.root()), f.root(), f.dev()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		f.undoLate(func() { os.Remove(dir) })
	}
	return nil
}
