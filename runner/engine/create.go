package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/limits"
	"demesne/runner/userns"
	"demesne/runner/wire"
)

// create makes a sandbox for c. On an error nothing is left of it.
func (c *caller) create(spec runner.Spec, m *wire.Message) (*runner.Created, error) {
	if err := c.e.settled(); err != nil {
		return nil, err
	}
	if err := admit(&spec); err != nil {
		return nil, err
	}
	egress, err := c.e.admitEgress(&spec, m)
	if err != nil {
		return nil, err
	}
	s := c.sandboxFor(spec, egress)
	if spec.Key != "" {
		defer c.e.keys.lock(spec.Key)()
		s.policy = policyOf(spec)
		if id, err := c.e.ofKey(spec.Key, s.policy); err != nil || id != "" {
			return &runner.Created{ID: id, Existing: true}, err
		}
	}
	if err := c.e.claim(s); err != nil {
		if s.spare {
			s.undoSpare()
		}
		return nil, err
	}
	if err := s.build(m); err != nil {
		return nil, wire.Errorf(codeOf(err), "create sandbox: %w", err)
	}
	if spec.Lifetime == runner.Persistent {
		close(s.built)
	} else {
		// It is on disk when it has ended: until then its caller knows all about it.
		s.owner = c
		close(s.built)
		if !c.adopt(s) {
			s.end("its caller ended")
			return nil, wire.ErrClosed
		}
	}
	return &runner.Created{ID: s.id, Level: s.receipt.Level, Trace: s.trace}, nil
}

func codeOf(err error) wire.Code { return wire.AsError(err).Code }

// admit refuses what no sandbox can be, and fills in what was left open.
func admit(spec *runner.Spec) error {
	if err := validName(spec.Name); err != nil {
		return err
	}
	if spec.Image == "" {
		spec.Image = "host"
	}
	if err := admitRootfs(spec); err != nil {
		return err
	}
	if spec.Hostname == "" {
		spec.Hostname = "demesne"
	}
	if spec.Key != "" && spec.Lifetime != runner.Persistent || len(spec.Key) > keyMax {
		return wire.Errorf(wire.CodeInvalid, "create sandbox: key %.64q: of more than %d bytes, or of a sandbox that is not persistent", spec.Key, keyMax)
	}
	if !filepath.IsAbs(spec.Out) {
		return wire.Errorf(wire.CodeInvalid, "create sandbox: output directory %q: not absolute", spec.Out)
	}
	switch spec.Require {
	case "", runner.LevelFull, runner.LevelDegraded, runner.LevelMinimal:
	default:
		return wire.Errorf(wire.CodeInvalid, "create sandbox: require %q: not a level (full, degraded, minimal)", spec.Require)
	}
	spec.Limits = limits.Resolve(spec.Limits)
	return nil
}

// stages measures the making of a sandbox.
type stages struct {
	last time.Time
	list []runner.Stage
}

func (t *stages) mark(name string) {
	now := time.Now()
	t.list = append(t.list, runner.Stage{Name: name, MS: float64(now.Sub(t.last).Microseconds()) / 1000})
	t.last = now
}

// make is the order in which a sandbox comes to be. Each step pushes its undoing.
func (s *sandbox) make(m *wire.Message) (err error) {
	t := &stages{last: time.Now()}
	defer func() { s.trace = t.list }()
	if s.e.boot.Mode == userns.ModeMinimal {
		return s.makeMinimal(m, t)
	}
	if !s.spare {
		defer s.e.spares.raising()()
		if err := s.raise(m, t); err != nil {
			return err
		}
	}
	return s.complete(m, t)
}

// raise brings a sandbox up to where PID 1 waits for commands, restricted. Of a spare it does
// not know yet whose it will be.
func (s *sandbox) raise(m *wire.Message, t *stages) (err error) {
	if err := s.userFits(); err != nil {
		return err
	}
	if err := s.keep(); err != nil {
		return err
	}
	if s.group, err = s.e.host.New(s.id, s.spec.Limits); err != nil {
		return err
	}
	s.undo.add(func() { s.group.Close() })
	t.mark("limits")
	// Both wait in the kernel, and neither for the other.
	out := s.wayOut(m)
	join := newNetwork(out)
	if err = s.trust(out); err == nil {
		err = s.mount(m)
	}
	t.mark("mounts")
	net, nerr := join()
	if nerr != nil {
		return errors.Join(err, nerr)
	}
	s.net = net
	s.undo.add(net.close)
	if err != nil {
		return err
	}
	admitted := func() error { return nil }
	if !s.spare {
		if admitted, err = s.openNetwork(m); err != nil {
			return err
		}
	}
	ns := net.ns
	if ns.Sysfs != nil {
		if err := s.tree.MountSys(ns.Sysfs); err != nil {
			return err
		}
	}
	t.mark("netns")
	start, err := s.start(ns)
	if err != nil {
		return err
	}
	if !s.spare {
		s.detach()
	}
	masked := s.mask(start)
	t.mark("clone")
	net.started()
	err = s.group.Add(s.pid)
	if err = errors.Join(err, <-masked); err != nil {
		return err
	}
	names := make(chan []runner.Layer, 1)
	go func() { names <- namespaceLayers(s.pid) }()
	facts, err := s.setUpGuest(guestSetup(s.spec, s.e.boot))
	if err != nil {
		return s.explainInit(err)
	}
	s.seen = seen{facts, start, <-names, ns.SysfsErr}
	t.mark("guest")
	if err := admitted(); err != nil {
		return err
	}
	t.mark("proxy")
	t.list = append(t.list,
		runner.Stage{Name: "guest:landlock", MS: ms(facts.Landlocked)}, runner.Stage{Name: "guest:seccomp", MS: ms(facts.Filtered)})
	return nil
}

// seen is what was found out while a sandbox was raised, for its receipt.
type seen struct {
	facts      wire.GuestFacts
	start      started
	namespaces []runner.Layer
	sysfsErr   error
}

// complete makes a raised sandbox its caller's.
func (s *sandbox) complete(m *wire.Message, t *stages) error {
	if s.spare {
		if err := s.handOver(m); err != nil {
			return err
		}
		t.mark("spare")
	}
	s.receipt = s.account(s.seen)
	if err := meets(s.receipt, s.spec.Require); err != nil {
		return err
	}
	s.watch()
	return nil
}

// detach gives up our own view of the mounts: PID 1 has its copy, and ours would only be
// copied into each sandbox that comes after. An unmount waits for the whole machine
// (RCU): beside PID 1's own start.
func (s *sandbox) detach() {
	detached := make(chan struct{})
	go func() { s.tree.Detach(); close(detached) }()
	s.undoLate(func() { <-detached })
}

// mask starts masking /proc and returns where its end is told. A masked /proc is one
// that a nested sandbox may not mount anew; the outer one, bound, is not ours to mask.
func (s *sandbox) mask(st started) <-chan error {
	done := make(chan error, 1)
	if s.spec.Nesting || st.rung.procBound {
		close(done)
		return done
	}
	go func() { done <- maskProc(s.mounts) }()
	return done
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// userFits refuses a user that the id map does not know.
func (s *sandbox) userFits() error {
	u := s.spec.User
	if u == nil {
		return nil
	}
	if u.UID >= size(s.e.boot.UIDMap) || u.GID >= size(s.e.boot.GIDMap) {
		return &wire.Error{
			Code: wire.CodeInvalid,
			Text: fmt.Sprintf("set user %d:%d: not in the id map, which has %d ids", u.UID, u.GID, size(s.e.boot.UIDMap)),
			Hint: s.e.boot.MapFix,
		}
	}
	return nil
}

func size(m []runner.IDRange) (n uint32) {
	for _, r := range m {
		n += r.Size
	}
	return n
}

// mount lays the tree out and opens what is read back at the end.
func (s *sandbox) mount(m *wire.Message) (err error) {
	dir := filepath.Join(s.e.dir, s.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s.undoLate(func() { os.Remove(dir) })
	init, err := s.e.initProgram(m)
	if err != nil {
		return err
	}
	l := rootfs.Layout{
		Dir: dir, Size: s.spec.Limits.Disk, Inodes: inodes(s.spec.Limits.Disk), Hostname: s.spec.Hostname,
		NameServer: nameServer(s.egress), Trust: s.trusts,
		Init: init, Out: source(m, runner.SourceOut, s.spec.Out),
	}
	if u := s.spec.User; u != nil {
		l.User = rootfs.User{UID: u.UID, GID: u.GID}
	}
	if s.spec.Workspace != "" {
		l.Workspace = source(m, runner.SourceWorkspace, s.spec.Workspace)
	}
	for i, in := range s.spec.Inputs {
		l.Inputs = append(l.Inputs, rootfs.Bind{Name: in.Name, Source: source(m, runner.SourceInput(i), in.Path)})
	}
	release, err := s.keepIn(&l)
	if err != nil {
		return err
	}
	defer release()
	if s.spec.Rootfs != nil {
		s.tree, err = s.mountImage(l, m)
	} else {
		s.tree, err = rootfs.MountHost(l)
	}
	if err != nil {
		return err
	}
	s.undoLate(func() { s.tree.Unmount() })
	if err := s.keptOnDisk(l); err != nil {
		return err
	}
	if s.scratch != "" {
		if err := s.watchScratch(); err != nil {
			return err
		}
	}
	s.undo.add(s.giveBack)
	if s.spare {
		return s.tree.Open()
	}
	return s.openShared()
}

// openShared opens what the sandbox shares with its caller, for the watch and for the end.
func (s *sandbox) openShared() (err error) {
	if s.out, err = os.Open(filepath.Join(s.tree.Root, "out")); err != nil {
		return err
	}
	s.lendOut()
	if s.spec.Workspace != "" {
		s.work, err = os.Open(filepath.Join(s.tree.Root, "workspace"))
	}
	return err
}

// inodes bounds what a tree of empty files takes: inodes are kernel memory, which no
// size= counts.
func inodes(bytes int64) int64 {
	const most = 256 << 10
	if bytes <= 0 {
		return most
	}
	return min(max(bytes/4096, 1024), most)
}

// giveBack makes /out and /workspace the caller's: no process of the sandbox is alive any more.
func (s *sandbox) giveBack() {
	if s.work != nil {
		s.settleWork()
	}
	if s.out == nil {
		return
	}
	var errs []error
	if s.takeBack != nil {
		errs = append(errs, s.takeBack())
	}
	if err := errors.Join(append(errs, rootfs.Settle(s.out, s.began))...); err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
	}
	s.out.Close()
}

func source(m *wire.Message, name, path string) rootfs.Source {
	return rootfs.Source{Path: path, Same: m.File(runner.FileSame + name), Mount: m.File(runner.FileMount + name)}
}

// watch starts what looks after the limits that no kernel mechanism holds.
func (s *sandbox) watch() {
	dirs := []*os.File{s.out}
	for _, d := range []*os.File{s.work, s.upper} {
		if d != nil {
			dirs = append(dirs, d)
		}
	}
	var whole []*os.File
	if s.written != nil {
		whole = append(whole, s.written)
	}
	stop := s.group.Watch(s.pid, dirs, whole, func(r runner.Reason, detail string) { go s.condemn(r, detail) })
	s.undo.add(stop)
}

// initProgram is demesne-init, to be bound in a sandbox. Real root's callers send it as a
// mount, for its path may be one that the runner's ids cannot search: the first one is kept,
// since a spare has no caller.
func (e *Engine) initProgram(m *wire.Message) (rootfs.Source, error) {
	sent := source(m, runner.SourceInit, e.boot.Init)
	e.mu.Lock()
	defer e.mu.Unlock()
	if sent.Mount != nil && e.init == "" {
		at := filepath.Join(e.dir, "init")
		if err := keepMount(sent.Mount, at); err != nil {
			return rootfs.Source{}, fmt.Errorf("keep init: %w", err)
		}
		e.init = at
	}
	if e.init != "" {
		return rootfs.Source{Path: e.init}, nil
	}
	return sent, nil
}

// keepMount attaches a detached mount of a file.
func keepMount(mount *os.File, at string) error {
	defer mount.Close()
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return err
	}
	return unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
