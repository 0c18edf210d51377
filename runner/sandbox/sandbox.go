// Package sandbox makes one sandbox, runs commands in it and tears it down.
//
//	s := sandbox.New(env, sandbox.NewID(), spec) // nothing exists yet
//	err := s.Build(m)                            // mounts, limits, network, PID 1, receipt; m brings descriptors
//	s.Made(owner)                                // callers may use it
//	reply, files, err := s.Execute(caller, request, m)
//	s.End("reason")                              // every process has ended, and nothing is left
//
// A run goes through the files in this order:
//
//	admit.go       what a Spec may say, and its defaults
//	build.go       the steps of making a sandbox; minimal.go  the same on a machine that forbids namespaces
//	persistent.go  the directory of a persistent sandbox    ┐
//	image.go       the layers of its image, locked          │ the parts, each with a comment that says
//	binds.go       /out and /workspace of its caller        │ which goroutine or lock owns it
//	files.go       the tree, mounted from these three       │
//	link.go        its network, and changes of its egress   │
//	pid1.go        the conversation with its PID 1          │
//	receipts.go    what was verified                        │
//	commands.go    its commands, and the table of results   │
//	clock.go       its expiry, and the pause while unused   ┘
//	exec.go        a command: environ.go  its user and variables; terminal.go  its terminal; result.go  its result
//	teardown.go    the end; cleanup.go  the stack of steps that undo the making
//
// Beside a run are fork.go and livefork.go (a sandbox from the files of another), stopped.go (sandboxes without
// processes) and changes.go (the difference to the image). machine.go has what all sandboxes of a runner share.
//
// The parts share an identity, which does not change, and a state, which has the locks: starting (a command starts, or
// all processes are paused) is taken before mu, and mu is never held while a call to PID 1 or to a caller waits.
//
// Package engine has the table of sandboxes and the connections, behind [Env] and [Caller].
//
// The kernel guarantees teardown. PID 1 ends when its socket to the runner closes; its pid namespace ends with it,
// and the mounts and the network namespace end with their last user. No code of the runner has to run for a sandbox
// to end.
package sandbox

import (
	"slices"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/network"
	"demesne/runner/store"
)

// Sandbox is one sandbox, from before it is made until nothing is left of it. It is safe for concurrent use after
// [Sandbox.Made].
type Sandbox struct {
	*state
	env   Env
	owner Caller         // only for a one-shot sandbox
	trace []runner.Stage // of making it

	// The parts. These do not change after Made,
	group *limits.Group
	files files
	link  link
	init  pid1

	// and these do. They share the locks of state.
	commands commands
	lease    lease
	idle     idle
	receipts receipts

	limiting sync.Mutex    // taken before mu: see HoldLimits
	lent     runner.Limits // of spec.Limits: see Lend. limiting or mu guards it, and both are held to write it
}

// Env is what a sandbox needs of the engine that runs it.
type Env struct {
	*Machine
	Results *Results
	// Forgotten is called once, after a sandbox has ended and the results of its commands are sent.
	Forgotten func(*Sandbox)
}

// New returns a sandbox that is yet to be made.
func New(env Env, id string, spec runner.Spec) *Sandbox {
	now := time.Now()
	st := &state{
		identity: &identity{machine: env.Machine, id: id, spec: spec, created: now, began: now},
		built:    make(chan struct{}), finished: make(chan struct{}),
	}
	s := &Sandbox{state: st, env: env, files: newFiles(st), commands: commands{running: map[uint64]*Execution{}}}
	s.receipts.state, s.link = st, link{state: st, receipts: &s.receipts}
	s.lease = lease{state: st, persistent: &s.files.persistent, commands: &s.commands}
	s.idle = idle{state: st, commands: &s.commands, init: &s.init}
	return s
}

// Assign gives a new or a prepared sandbox the Spec, the whole Egress and the creator that it is made for.
func (s *Sandbox) Assign(spec runner.Spec, egress *runner.Egress, c Caller) {
	now := time.Now()
	s.spec, s.egress, s.created, s.began = spec, egress, now, now
	s.link.adopt(c)
	s.files.persistent.secrets = namesOf(SecretsOf(egress))
	if spec.Lifetime == runner.Persistent && spec.Name == "" && spec.Key == "" {
		s.lease.maker = c
	}
}

// NewRestarted returns a sandbox that is to be made again over its remaining files, for c. egress has the secrets that
// it gets this time.
func NewRestarted(env Env, rec store.Record, spec runner.Spec, egress *runner.Egress, secrets []runner.Secret, c Caller) *Sandbox {
	s := New(env, rec.Info.ID, spec)
	s.egress, s.created = egress, rec.Info.Created
	s.link.adopt(c)
	s.commands.last = rec.Info.Result
	s.commands.next = uint64(s.began.UnixMilli()) << 12 // command numbers are never reused
	lacking := missing(rec.Secrets, secrets)
	without := slices.Concat(lacking, network.Tokenless(egress))
	s.files.persistent.restarted, s.files.persistent.notice = true, notice{!rec.Quiet, without}
	s.files.persistent.secrets = append(lacking[:len(lacking):len(lacking)], namesOf(secrets)...)
	return s
}

// Made ends the making of s. owner is the caller that a one-shot sandbox ends with, else nil.
func (s *Sandbox) Made(owner Caller) {
	s.owner = owner
	close(s.built)
}

// Created describes s to its creator.
func (s *Sandbox) Created() *api.Created {
	made := &api.Created{ID: s.id, Level: s.receipts.now.Level, Trace: s.trace}
	if t := s.files.tree; t != nil && t.Unmapped != nil {
		made.Unmapped = &runner.User{UID: t.Unmapped.UID, GID: t.Unmapped.GID}
	}
	return made
}

// Info returns the current state of s.
func (s *Sandbox) Info() runner.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := runner.Info{
		ID: s.id, Name: s.spec.Name, State: runner.Running, Created: s.created, Expires: s.lease.expires,
		Out: s.spec.Out, PID: s.init.pid, Execs: len(s.commands.running), Spec: s.spec, Receipt: s.receipts.now, Result: s.commands.last,
	}
	i.Spec.Granted = "" // valid for the current run only
	if s.idle.paused != nil {
		i.State = runner.Paused
	}
	if s.Done() {
		i.State, i.PID = runner.Ended, 0
	}
	return i
}

// Open waits until s is made and describes it for a caller that found it.
func (s *Sandbox) Open() (api.Opened, error) {
	<-s.built
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return api.Opened{}, s.endedErr("open sandbox")
	}
	if s.lease.maker != nil {
		s.lease.used()
	}
	n := s.files.persistent.notice
	opened := api.Opened{ID: s.id, Out: s.spec.Out, Restarted: n.restarted, MissingSecrets: n.secrets, Served: s.spec.Served()}
	if s.receipts.now != nil { // nil only for a sandbox that was never built
		opened.Level = s.receipts.now.Level
	}
	return opened, nil
}

// Unpacked returns an error if layers of the image are not unpacked. Its caller unpacks them and calls again.
func (s *Sandbox) Unpacked() error { return s.files.image.unpacked() }

// Hold locks the layers of a prepared sandbox for its owner. It returns false if its layers or its PID 1 are gone.
func (s *Sandbox) Hold() bool {
	select {
	case <-s.init.peer.Done(): // its PID 1 was killed
		return false
	default:
		return s.spec.Rootfs == nil || s.files.image.holdAgain() == nil
	}
}

// Unknown reports whether only its creator knows s.
func (s *Sandbox) Unknown() bool { return s.lease.unknown() }

// record writes the current state of s.
func (s *Sandbox) record() error {
	i := s.Info()
	s.mu.Lock()
	ends := s.lease.ends
	s.mu.Unlock()
	return s.files.persistent.record(i, ends, s.init.pid)
}

// Adopt makes c answer the questions of s, if the caller that did so has left.
func (s *Sandbox) Adopt(c Caller) { s.link.adopt(c) }

// Answer forwards a caller's answer to a question of s.
func (s *Sandbox) Answer(a api.Answer) {
	if w := s.link.whenBuilt(); w != nil {
		w.Answer(a)
	}
}

// Listeners returns the listeners of Egress.Listen, once. The receiver closes them.
func (s *Sandbox) Listeners() ipc.Files { return s.link.net.Listeners() }

// ChangeEgress changes the egress rules of s.
func (s *Sandbox) ChangeEgress(change runner.EgressChange) error {
	if err := s.link.change(change); err != nil || !s.Stays() {
		return err
	}
	return s.record() // a restart must not undo a denial
}

// HoldLimits excludes other changes of the limits of s until release.
func (s *Sandbox) HoldLimits() (release func()) {
	s.limiting.Lock()
	return s.limiting.Unlock
}

// ChangeLimits changes the limits of s that are not zero in l. The caller has them held, see HoldLimits. The engine
// serializes it with what reads the Limits of all sandboxes.
func (s *Sandbox) ChangeLimits(l runner.Limits) error {
	if err := s.setLimits("change limits of sandbox", l, s.lent); err != nil || !s.Stays() {
		return err
	}
	return s.record()
}

// Lend changes what other sandboxes have of the limits of s. The caller has them held. It fails if s itself uses more
// memory than would remain. Files that the kernel can drop do not count as used; that may take time.
func (s *Sandbox) Lend(lent runner.Limits) error {
	<-s.built
	rest := s.spec.Limits.Less(lent)
	switch used := s.group.Used(); {
	case lent.Memory < 0 || lent.CPUs < 0:
		return ipc.Errorf(ipc.CodeInvalid, "lend limits of sandbox %q: a loan is not below zero", s.id)
	case rest.Memory > 0 && lent.Memory > s.lent.Memory && used > rest.Memory:
		return ipc.Errorf(ipc.CodeTooMuch, "lend limits of sandbox %q: it uses %d bytes of memory, and %d would remain", s.id, used, rest.Memory)
	}
	return s.setLimits("lend limits of sandbox", runner.Limits{}, lent)
}

// setLimits gives the processes of s its limits, with the changes of l, without what is lent. On an error all is as before.
func (s *Sandbox) setLimits(verb string, l, lent runner.Limits) error {
	<-s.built
	if err := s.alive(verb); err != nil {
		return err
	}
	total := l.Over(s.spec.Limits)
	rest := total.Less(lent)
	own := l
	if rest.Memory > 0 {
		own.Memory = rest.Memory
	}
	if rest.CPUs > 0 {
		own.CPUs = rest.CPUs
	}
	if err := s.group.Change(own); err != nil {
		return ipc.Errorf(ipc.AsError(err).Code, "%s %q: %w", verb, s.id, err)
	}
	receipt := s.group.Receipt(s.files.watched())
	s.mu.Lock()
	s.spec.Limits, s.lent = total, lent
	s.receipts.setLimits(receipt)
	s.mu.Unlock()
	return nil
}

// OwnLimits returns the limits of s, with the changes of l, without what is lent.
func (s *Sandbox) OwnLimits(l runner.Limits) runner.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.Over(s.spec.Limits).Less(s.lent)
}
