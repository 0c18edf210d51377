package engine

import (
	"errors"
	"os"
	"strings"
	"time"

	"demesne/rootfs/procmask"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/receipt"
	"demesne/runner/userns"
)

// stages measures the making of a sandbox.
type stages struct {
	last time.Time
	list []runner.Stage
}

func (t *stages) mark(name string) {
	now := time.Now()
	t.list = append(t.list, runner.Stage{Name: name, MS: ms(now.Sub(t.last))})
	t.last = now
}

// part adds a time that lies within the others.
func (t *stages) part(name string, d time.Duration) {
	t.list = append(t.list, runner.Stage{Name: name, MS: ms(d)})
}

// make is the order in which a sandbox comes to be. Each step pushes its undoing.
func (s *sandbox) make(m *ipc.Message) (err error) {
	t := &stages{last: time.Now()}
	defer func() { s.trace = t.list }()
	if s.e.boot.Mode == userns.ModeMinimal {
		return s.makeMinimal(m, t)
	}
	if !s.spare {
		defer s.e.spares.raising()()
		if err := s.raiseInTurn(m, t); err != nil {
			return err
		}
	}
	return s.complete(m, t)
}

// raiseInTurn raises no more sandboxes at a time than there are processors, and one for when the others
// wait in the kernel: 100 at once then take a tenth less of the processors than all together, and
// the first need not wait for the last. Who comes first is served first.
func (s *sandbox) raiseInTurn(m *ipc.Message, t *stages) error {
	s.e.turns <- struct{}{}
	defer func() { <-s.e.turns }()
	return s.raise(m, t)
}

// raise brings a sandbox up to where PID 1 waits for commands, restricted. Of a spare it does
// not know yet whose it will be.
func (s *sandbox) raise(m *ipc.Message, t *stages) (err error) {
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
	// They do not wait for each other, nor PID 1 for the tree before it has to be in it.
	out := s.wayOut(m)
	join := s.e.newNetwork(out)
	laid := s.layTree(m, out)
	defer laid.wait()
	net, err := join()
	if err != nil {
		return err
	}
	s.net = net
	s.undo.add(net.close)
	admitted := func() error { return nil }
	if !s.spare {
		if admitted, err = s.openNetwork(m); err != nil {
			return err
		}
	}
	t.mark("netns")
	if err := s.bringUp(laid, t); err != nil {
		return err
	}
	if err := admitted(); err != nil {
		return err
	}
	t.mark("proxy")
	t.part("guest:landlock", s.seen.facts.Landlocked)
	t.part("guest:seccomp", s.seen.facts.Filtered)
	return nil
}

// bringUp starts PID 1 in its tree and has it restrict itself.
func (s *sandbox) bringUp(laid *laying, t *stages) error {
	start, err := s.start(s.net.ns, laid)
	t.part("mounts", laid.took)
	if s.spec.Rootfs != nil {
		t.part("mounts:layers", s.image.stacked)
	}
	if err != nil {
		return err
	}
	if !s.spare {
		s.detach()
	}
	masked := s.mask(start)
	t.mark("clone")
	s.net.started()
	err = s.group.Add(s.pid)
	if err = errors.Join(err, <-masked); err != nil {
		return err
	}
	names := make(chan []runner.Layer, 1)
	go func() { names <- receipt.Namespaces(s.pid) }()
	facts, err := s.setUpGuest(guestSetup(s.spec, s.e.boot))
	if err != nil {
		return s.explainInit(err)
	}
	s.seen = seen{facts, start, <-names, s.net.ns.SysfsErr}
	t.mark("guest")
	return nil
}

// seen is what was found out while a sandbox was raised, for its receipt.
type seen struct {
	facts      pid1api.Facts
	start      started
	namespaces []runner.Layer
	sysfsErr   error
}

// complete makes a raised sandbox its caller's.
func (s *sandbox) complete(m *ipc.Message, t *stages) error {
	if s.spare {
		if err := s.handOver(m); err != nil {
			return err
		}
		t.mark("spare")
	}
	s.receipt = s.writeReceipt()
	if err := receipt.Meets(s.receipt, s.spec.Require); err != nil {
		return err
	}
	s.watch()
	return nil
}

// writeReceipt has the receipt written of what is known by now.
func (s *sandbox) writeReceipt() *runner.Receipt {
	st := s.seen.start
	return receipt.Of(receipt.Facts{
		Sandbox: s.id, Kernel: s.e.kernel, Boot: s.e.boot, Spec: s.spec,
		Guest: s.seen.facts, Namespaces: s.seen.namespaces,
		Start:  receipt.Start{ProcBound: st.rung.procBound, NoHostname: st.rung.noHostname, Why: st.why},
		SysErr: s.seen.sysfsErr, CoresTo: corePattern(), Privileges: privileges(s.spec),
		Tree: s.tree, OnDisk: s.kept.onDisk, KeptWhy: s.kept.why,
		Network: s.net.word(), Ways: s.net.layers(), Limits: s.group.Receipt(s.watched()),
	})
}

// corePattern is where the kernel sends core dumps. It is read for each sandbox: an administrator may change it while a
// runner lives.
func corePattern() string {
	b, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	return strings.TrimSpace(string(b))
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
	go func() { done <- procmask.Proc(s.mounts) }()
	return done
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
