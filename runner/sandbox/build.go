package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"demesne/internal/flock"
	"demesne/netns"
	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/network"
)

// building is the making of a sandbox, by one goroutine. Each step pushes its own undo.
type building struct {
	*Sandbox
	m *ipc.Message // brings the files of the caller
	stages
}

// stages measures the steps of making a sandbox.
type stages struct {
	last time.Time
	list []runner.Stage
}

func (t *stages) mark(name string) {
	now := time.Now()
	t.list = append(t.list, runner.Stage{Name: name, MS: ms(now.Sub(t.last))})
	t.last = now
}

// part adds a time that is included in other stages.
func (t *stages) part(name string, d time.Duration) {
	t.list = append(t.list, runner.Stage{Name: name, MS: ms(d)})
}

// Build makes s, with the files that came with m. On an error it removes everything except the files that s had
// before.
func (s *Sandbox) Build(m *ipc.Message) error {
	b := &building{Sandbox: s, m: m, stages: stages{last: time.Now()}}
	err := b.all()
	s.trace = b.list
	if err == nil {
		err = s.become()
	}
	if err != nil {
		s.Abandon()
	}
	return err
}

// Prepare makes s up to the point where its owner must be known. Of egress, only GoProxy, Trust and the ports of Routes matter. On an error nothing
// is left of s.
func (s *Sandbox) Prepare(egress *runner.Egress) error {
	s.prepared, s.egress = true, egress
	b := &building{Sandbox: s, m: &ipc.Message{}}
	err := b.raise()
	if err != nil {
		s.Abandon()
	}
	return err
}

// all takes every step that s still needs.
func (b *building) all() error {
	var err error
	switch {
	case b.machine.minimal():
		err = b.raiseMinimal()
	case !b.prepared:
		defer b.machine.Load.Building()()
		err = b.raiseInTurn()
	}
	if err != nil {
		return err
	}
	return b.complete()
}

// become is the last step of making a persistent sandbox. From here on it no longer depends on its creator.
func (s *Sandbox) become() error {
	if s.spec.Lifetime != runner.Persistent {
		return nil
	}
	s.lease.start(s.Remove)
	if !s.files.persistent.onDisk {
		s.machine.History.Write(s.Info())
		return nil
	}
	// On a full disk the earlier record is good enough: the files of the sandbox itself may be what fills the disk.
	if err := s.record(); err != nil && !(s.files.persistent.restarted && ipc.Full(err)) {
		return err
	}
	s.mu.Lock()
	s.stay = true
	s.mu.Unlock()
	return nil
}

// raiseInTurn is raise, in turn with the other callers. A caller that disconnects gives its turn up.
func (b *building) raiseInTurn() error {
	done, err := b.machine.turns.take(b.link.answerer().Done())
	if err != nil {
		return err
	}
	defer done()
	return b.raise()
}

// raise creates a sandbox up to the point where PID 1, restricted, waits for commands. The owner of a prepared
// sandbox is not known yet.
func (b *building) raise() (err error) {
	if err := b.userFits(); err != nil {
		return err
	}
	if err := b.files.persistent.open(b.leave); err != nil {
		return err
	}
	if b.group, err = b.machine.Limits.New(b.id, b.spec.Limits); err != nil {
		return err
	}
	b.undo.add(func() { b.group.Close() })
	b.mark("limits")
	// Network and tree are independent, and PID 1 starts before the tree is complete.
	out := b.link.begin(b.m)
	join := network.New(&b.machine.reserve, out)
	tree := b.files.mountAsync(b.m, out)
	defer tree.wait()
	if b.link.net, err = join(); err != nil {
		return err
	}
	b.undo.add(b.link.net.Close)
	admitted := func() error { return nil }
	if !b.prepared {
		if admitted, err = b.link.open(b.m); err != nil {
			return err
		}
	}
	b.mark("netns")
	if err := b.bringUp(tree); err != nil {
		return err
	}
	if err := admitted(); err != nil {
		return err
	}
	b.mark("proxy")
	b.part("guest:landlock", b.init.facts.Landlocked)
	b.part("guest:seccomp", b.init.facts.Filtered)
	return nil
}

// bringUp starts PID 1 in its tree and makes it restrict itself.
func (b *building) bringUp(tree *mounting) error {
	err := b.start(b.link.net.NS, tree)
	b.part("mounts", tree.took)
	if b.spec.Rootfs != nil {
		b.part("mounts:layers", b.files.image.stacked)
	}
	if err != nil {
		return err
	}
	if !b.prepared {
		b.files.detach()
	}
	masked := b.mask()
	b.mark("clone")
	b.link.net.Started()
	err = b.group.Add(b.init.pid)
	if err = errors.Join(err, <-masked); err != nil {
		return err
	}
	names := make(chan []runner.Layer, 1)
	go func() { names <- container.Namespaces(b.init.pid) }()
	if _, err := b.init.restrict(container.Setup(b.spec, b.machine.Boot)); err != nil {
		return b.explainInit(err)
	}
	b.init.namespaces = <-names
	b.mark("guest")
	return nil
}

// start starts PID 1, on the best fallback level that works here. It waits for tree when it needs it.
func (b *building) start(ns *netns.NS, tree *mounting) error {
	if err := b.files.makePlace(); err != nil {
		return err
	}
	c := container.Config{ID: b.id, Root: b.files.root(), Dev: b.files.dev(), NetNS: ns.File, Spec: b.spec}
	init, err := b.machine.starter.Start(c, func() error { return b.files.show(tree, ns) })
	if err != nil {
		return err
	}
	b.serveInit(init)
	b.undo.add(func() {
		b.init.peer.Close()
		b.group.Kill()
		init.Kill()
		init.Wait()
	})
	b.undoLate(init.Forget)
	return nil
}

// serveInit serves the messages of PID 1, and ends the sandbox when PID 1 ends by itself.
func (s *Sandbox) serveInit(init *container.Init) {
	s.init.pid, s.init.mounts, s.init.start = init.PID, init.Mounts, init.Start
	s.init.peer = ipc.NewPeer(init.Socket, s.fromInit)
	go func() {
		s.init.peer.Serve()
		<-s.built
		s.mu.Lock()
		ending := s.ending
		s.mu.Unlock()
		switch {
		case ending:
		case s.group.OOMKilled():
			s.terminate(runner.OOM, "the memory limit was reached")
		default:
			s.terminate(runner.Lost, "PID 1 of the sandbox was killed")
		}
	}()
}

// mask starts masking /proc and returns a channel that reports the outcome. It masks nothing for nesting, because a nested
// sandbox could then not mount a new /proc. It does not mask a bound /proc, which is the outer one.
func (b *building) mask() <-chan error {
	done := make(chan error, 1)
	if b.spec.Nesting || b.init.start.ProcBound {
		close(done)
		return done
	}
	go func() { done <- rootfs.MaskProc(b.init.mounts) }()
	return done
}

// complete hands a raised sandbox to its caller, writes its receipt and starts its watchdog.
func (b *building) complete() error {
	if b.prepared {
		if err := b.handOver(); err != nil {
			return err
		}
		b.mark("prepared")
	}
	b.receipts.now = b.writeReceipt()
	if err := container.MeetsLevel(b.receipts.now, b.spec.Require); err != nil {
		return err
	}
	b.undo.add(b.group.Watch(b.init.pid, b.files.watched(), func(r runner.Reason, detail string) { go b.terminate(r, detail) }))
	return nil
}

// handOver gives a prepared sandbox the directories, sockets and rules of its caller.
func (b *building) handOver() error {
	if w := b.link.net.Egress(); w != nil {
		b.link.askProxy(w, b.m)
	}
	admitted, err := b.link.open(b.m)
	if err != nil {
		return err
	}
	if err := b.files.complete(b.m); err != nil {
		return err
	}
	for _, d := range append([]bind{b.files.binds.out}, b.files.binds.work...) {
		if !flock.Leads(fmt.Sprintf("/proc/%d/root%s", b.init.pid, d.inside), d.File) {
			return fmt.Errorf("mount %s: it does not appear in the sandbox", d.inside)
		}
	}
	if err := admitted(); err != nil {
		return err
	}
	b.files.detach() // last: its unmounts would delay the steps above, which are waited for
	return nil
}

// writeReceipt returns the receipt for the facts known so far.
func (b *building) writeReceipt() *runner.Receipt {
	f := container.ReceiptFacts{
		Sandbox: b.id, Kernel: b.machine.kernel, Boot: b.machine.Boot, Spec: b.spec,
		Guest: b.init.facts, Namespaces: b.init.namespaces, Start: b.init.start,
		CoresTo: corePattern(), Privileges: container.PrivilegesOf(b.spec, b.machine.Boot),
		Unplaced: b.files.unplaced,
		Tree:     b.files.tree, OnDisk: b.files.persistent.onDisk, KeptWhy: b.files.persistent.why,
		Network: b.link.net.Word(), Egress: b.link.net.Layers(), Limits: b.group.Receipt(b.files.watched()),
	}
	if b.link.net != nil && b.link.net.NS != nil {
		f.SysErr = b.link.net.NS.SysfsErr
	}
	return container.NewReceipt(f)
}

// corePattern returns the kernel's destination of core dumps. It is read for each sandbox, because an administrator
// may change it while the runner lives.
func corePattern() string {
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	return strings.TrimSpace(string(pattern))
}
