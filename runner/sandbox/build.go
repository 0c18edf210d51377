package sandbox

import (
	"errors"
	"os"
	"strings"
	"time"

	"demesne/rootfs/procmask"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/network"
	"demesne/runner/receipt"
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

// Build makes s, with the files that came with m. On an error it removes everything except the files that s had
// before.
func (s *Sandbox) Build(m *ipc.Message) error {
	err := s.make(m)
	if err == nil {
		err = s.become()
	}
	if err != nil {
		s.Abandon()
	}
	return err
}

// Prepare makes s up to the point where its owner must be known. Of egress, only GoProxy matters. On an error nothing
// is left of s.
func (s *Sandbox) Prepare(egress *runner.Egress) error {
	s.prepared, s.egress = true, egress
	err := s.raise(&ipc.Message{}, &stages{})
	if err != nil {
		s.Abandon()
	}
	return err
}

// make creates the sandbox step by step. Each step pushes its own undo.
func (s *Sandbox) make(m *ipc.Message) (err error) {
	t := &stages{last: time.Now()}
	defer func() { s.trace = t.list }()
	if s.on.minimal() {
		return s.makeMinimal(m, t)
	}
	if !s.prepared {
		defer s.on.Load.Building()()
		if err := s.raiseInTurn(m, t); err != nil {
			return err
		}
	}
	return s.complete(m, t)
}

// raiseInTurn limits concurrent raises to one per processor, plus one for when the others wait in the kernel. 100
// simultaneous requests then take a tenth less processor time than without the limit, and the first does not wait
// for the last. The order is first come, first served.
func (s *Sandbox) raiseInTurn(m *ipc.Message, t *stages) error {
	s.on.turns <- struct{}{}
	defer func() { <-s.on.turns }()
	return s.raise(m, t)
}

// raise creates a sandbox up to the point where PID 1, restricted, waits for commands. The owner of a prepared
// sandbox is not known yet.
func (s *Sandbox) raise(m *ipc.Message, t *stages) (err error) {
	if err := s.userFits(); err != nil {
		return err
	}
	if err := s.files.own.open(s.leave); err != nil {
		return err
	}
	if s.group, err = s.on.Limits.New(s.id, s.spec.Limits); err != nil {
		return err
	}
	s.undo.add(func() { s.group.Close() })
	t.mark("limits")
	// Network and tree are independent, and PID 1 starts before the tree is complete.
	out := s.beginEgress(m)
	join := network.New(&s.on.reserve, out)
	tree := s.files.mountAsync(m, out)
	defer tree.wait()
	if s.net, err = join(); err != nil {
		return err
	}
	s.undo.add(s.net.Close)
	admitted := func() error { return nil }
	if !s.prepared {
		if admitted, err = s.openNetwork(m); err != nil {
			return err
		}
	}
	t.mark("netns")
	if err := s.bringUp(tree, t); err != nil {
		return err
	}
	if err := admitted(); err != nil {
		return err
	}
	t.mark("proxy")
	t.part("guest:landlock", s.init.facts.Landlocked)
	t.part("guest:seccomp", s.init.facts.Filtered)
	return nil
}

// beginEgress begins the egress of a sandbox that has one. The rules of a prepared sandbox are not yet known.
func (s *Sandbox) beginEgress(m *ipc.Message) *network.Egress {
	if s.egress == nil {
		return nil
	}
	w := network.NewEgress(*s.egress)
	if !s.prepared {
		s.askProxy(w, m)
	}
	s.undo.add(w.Close)
	return w
}

// askProxy sends the requested rules to the proxy.
func (s *Sandbox) askProxy(w *network.Egress, m *ipc.Message) {
	s.on.Proxy.Program(m.File(api.FileProxy))
	var ask func(name string, port uint16) // nil: there are no questions
	if s.egress.Ask > 0 {
		ask = s.ask
	}
	w.Begin(&s.on.Proxy, s.id, *s.egress, m.File(api.FileLog), ask)
}

// openNetwork starts serving the sandbox's network in both directions. admitted waits for the proxy and then
// reports whether it serves and whether its rules are permitted for the sandbox.
func (s *Sandbox) openNetwork(m *ipc.Message) (admitted func() error, _ error) {
	if err := s.net.Publish(s.spec.Publish, m); err != nil {
		return nil, err
	}
	w := s.net.Egress()
	if w == nil {
		return func() error { return nil }, nil
	}
	var err error
	served := make(chan struct{})
	go func() { err = w.Serve(); close(served) }()
	s.undo.add(func() { <-served }) // otherwise sockets would be closed while they are handed over
	return func() error {
		if <-served; err != nil {
			return err
		}
		plan, err := w.Settled()
		if err == nil {
			err = network.AdmitPlan(&s.spec, plan)
		}
		return err
	}, nil
}

// bringUp starts PID 1 in its tree and makes it restrict itself.
func (s *Sandbox) bringUp(tree *mounting, t *stages) error {
	err := s.start(s.net.NS, tree)
	t.part("mounts", tree.took)
	if s.spec.Rootfs != nil {
		t.part("mounts:layers", s.files.image.stacked)
	}
	if err != nil {
		return err
	}
	if !s.prepared {
		s.files.detach()
	}
	masked := s.mask()
	t.mark("clone")
	s.net.Started()
	err = s.group.Add(s.init.pid)
	if err = errors.Join(err, <-masked); err != nil {
		return err
	}
	names := make(chan []runner.Layer, 1)
	go func() { names <- receipt.Namespaces(s.init.pid) }()
	if err := s.init.restrict(container.Setup(s.spec, s.on.Boot)); err != nil {
		return s.explainInit(err)
	}
	s.init.namespaces = <-names
	t.mark("guest")
	return nil
}

// mask starts masking /proc and returns a channel that reports the outcome. It masks nothing for nesting, because a
// nested sandbox could then not mount /proc anew. It does not mask a bound /proc, which is the outer one.
func (s *Sandbox) mask() <-chan error {
	done := make(chan error, 1)
	if s.spec.Nesting || s.init.start.ProcBound {
		close(done)
		return done
	}
	go func() { done <- procmask.Proc(s.init.mounts) }()
	return done
}

// complete hands a raised sandbox to its caller, writes its receipt and starts its watchdog.
func (s *Sandbox) complete(m *ipc.Message, t *stages) error {
	if s.prepared {
		if err := s.handOver(m); err != nil {
			return err
		}
		t.mark("spare")
	}
	s.receipt = s.writeReceipt()
	if err := receipt.Meets(s.receipt, s.spec.Require); err != nil {
		return err
	}
	s.undo.add(s.group.Watch(s.init.pid, s.files.watched(), func(r runner.Reason, detail string) { go s.terminate(r, detail) }))
	return nil
}

// handOver gives a prepared sandbox the directories, sockets and rules of its caller.
func (s *Sandbox) handOver(m *ipc.Message) error {
	if w := s.net.Egress(); w != nil {
		s.askProxy(w, m)
	}
	admitted, err := s.openNetwork(m)
	if err != nil {
		return err
	}
	if err := s.files.complete(m); err != nil {
		return err
	}
	if err := admitted(); err != nil {
		return err
	}
	s.files.detach() // last: its unmounts would delay the steps above, which are waited for
	return nil
}

// writeReceipt returns the receipt for the facts known so far.
func (s *Sandbox) writeReceipt() *runner.Receipt {
	f := receipt.Facts{
		Sandbox: s.id, Kernel: s.on.kernel, Boot: s.on.Boot, Spec: s.spec,
		Guest: s.init.facts, Namespaces: s.init.namespaces, Start: s.init.start,
		CoresTo: corePattern(), Privileges: container.Privileges(s.spec),
		Tree: s.files.tree, OnDisk: s.files.own.onDisk, KeptWhy: s.files.own.why,
		Network: s.net.Word(), Ways: s.net.Layers(), Limits: s.group.Receipt(s.files.watched()),
	}
	if s.net != nil {
		f.SysErr = s.net.NS.SysfsErr
	}
	return receipt.Of(f)
}

// corePattern returns the kernel's destination of core dumps. It is read for each sandbox, because an administrator
// may change it while the runner lives.
func corePattern() string {
	b, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	return strings.TrimSpace(string(b))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
