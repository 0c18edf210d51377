package engine

import (
	"errors"
	"os"
	"strings"
	"time"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/receipt"
	"demesne/runner/userns"
)

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

// make creates the sandbox step by step. Each step pushes its own undo.
func (s *sandbox) make(m *ipc.Message) (err error) {
	t := &stages{last: time.Now()}
	defer func() { s.trace = t.list }()
	if s.e.boot.Mode == userns.ModeMinimal {
		return s.makeMinimal(m, t)
	}
	if !s.spare {
		defer s.e.pool.raising()()
		if err := s.raiseInTurn(m, t); err != nil {
			return err
		}
	}
	return s.complete(m, t)
}

// raiseInTurn limits concurrent raises to one per processor, plus one for when the others wait in the kernel. 100
// simultaneous requests then take a tenth less processor time than without the limit, and the first does not wait
// for the last. The order is first come, first served.
func (s *sandbox) raiseInTurn(m *ipc.Message, t *stages) error {
	s.e.turns <- struct{}{}
	defer func() { <-s.e.turns }()
	return s.raise(m, t)
}

// raise creates a sandbox up to the point where PID 1, restricted, waits for commands. The owner of a prepared
// sandbox is not known yet.
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
	// Network and tree are independent, and PID 1 starts before the tree is complete.
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

// bringUp starts PID 1 in its tree and makes it restrict itself.
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

// seen is the findings of raise, for the receipt.
type seen struct {
	facts      pid1api.Facts
	start      started
	namespaces []runner.Layer
	sysfsErr   error
}

// complete hands a raised sandbox to its caller, writes its receipt and starts its watchdog.
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

// writeReceipt returns the receipt for the facts known so far.
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

// corePattern returns the kernel's destination of core dumps. It is read for each sandbox, because an administrator
// may change it while the runner lives.
func corePattern() string {
	b, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	return strings.TrimSpace(string(b))
}

// detach unmounts the runner's own view of the tree. PID 1 has its copy, and the runner's would be copied into each
// later sandbox. Unmounting waits for an RCU grace period of the whole machine, so it runs beside PID 1's start.
func (s *sandbox) detach() {
	detached := make(chan struct{})
	go func() { s.tree.Detach(); close(detached) }()
	s.undoLate(func() { <-detached })
}

// mask starts masking /proc and returns a channel that reports the outcome. It masks nothing for nesting, because a
// nested sandbox could then not mount /proc anew. It does not mask a bound /proc, which is the outer one.
func (s *sandbox) mask(st started) <-chan error {
	done := make(chan error, 1)
	if s.spec.Nesting || st.rung.procBound {
		close(done)
		return done
	}
	go func() { done <- rootfs.MaskProc(s.mounts) }()
	return done
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
