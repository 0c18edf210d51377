package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	*identity
	env   Env
	owner Caller // only for a one-shot sandbox
	asker Caller // answers questions about egress

	// The parts, in the order in which raise makes them. They do not change after Made.
	group *limits.Group
	files files
	net   *network.Network
	init  pid1

	trace    []runner.Stage
	built    chan struct{} // closed when making it has succeeded or failed; only then may it be ended
	finished chan struct{} // closed when teardown is complete

	starting sync.RWMutex // read-locked to start a command, locked to pause all processes; taken before mu
	mu       sync.Mutex   // guards the fields below, and where their comments say so, fields of the parts
	commands commands
	lease    lease
	idle     idle
	receipt  *runner.Receipt
	sent     sentReceipt   // receipt as encoded
	verdict  runner.Reason // why the runner ended it; empty if it ended by itself
	detail   string
	ending   bool
}

// Env is what a sandbox needs of the engine that runs it.
type Env struct {
	*Machine
	Results *Results
	// Forgotten is called once, after a sandbox has ended and the results of its commands are sent.
	Forgotten func(*Sandbox)
}

// Caller is a connection of a client, as a sandbox sees it.
type Caller interface {
	Left() bool            // reports whether it has disconnected
	Done() <-chan struct{} // closed when it has disconnected
	Event(op ipc.Op, body any) error
	Disown(*Sandbox) // called for its one-shot sandbox at the end
}

// New returns a sandbox that is yet to be made.
func New(env Env, id string, spec runner.Spec) *Sandbox {
	now := time.Now()
	i := &identity{on: env.Machine, id: id, spec: spec, created: now, began: now}
	return &Sandbox{
		identity: i, env: env, files: newFiles(i),
		commands: commands{running: map[uint64]*Execution{}}, built: make(chan struct{}), finished: make(chan struct{}),
	}
}

// Assign gives a new or a prepared sandbox the Spec, the whole Egress and the creator that it is made for.
func (s *Sandbox) Assign(spec runner.Spec, egress *runner.Egress, c Caller) {
	now := time.Now()
	s.spec, s.egress, s.asker, s.created, s.began = spec, egress, c, now, now
	s.files.own.secrets = namesOf(SecretsOf(egress))
	if spec.Lifetime == runner.Persistent && spec.Name == "" && spec.Key == "" {
		s.lease.maker = c
	}
}

// NewRestarted returns a sandbox that is to be made again over its remaining files, for c. egress has the secrets that
// it gets this time.
func NewRestarted(env Env, rec store.Record, spec runner.Spec, egress *runner.Egress, secrets []runner.Secret, c Caller) *Sandbox {
	s := New(env, rec.Info.ID, spec)
	s.asker, s.egress, s.created = c, egress, rec.Info.Created
	s.commands.last = rec.Info.Result
	s.commands.next = uint64(s.began.UnixMilli()) << 12 // command numbers are never reused
	lacking := missing(rec.Secrets, secrets)
	s.files.own.restarted, s.files.own.notice = true, notice{!rec.Quiet, lacking}
	s.files.own.secrets = append(lacking[:len(lacking):len(lacking)], namesOf(secrets)...)
	return s
}

// ID returns the id.
func (s *Sandbox) ID() string { return s.id }

// Spec returns the Spec. Only its Egress changes after creation: Info has a copy.
func (s *Sandbox) Spec() *runner.Spec { return &s.spec }

// Prepared reports whether s was made before its owner was known.
func (s *Sandbox) Prepared() bool { return s.prepared }

// Made ends the making of s. owner is the caller that a one-shot sandbox ends with, else nil.
func (s *Sandbox) Made(owner Caller) {
	s.owner = owner
	close(s.built)
}

// Created describes s to its creator.
func (s *Sandbox) Created() *api.Created {
	return &api.Created{ID: s.id, Level: s.receipt.Level, Trace: s.trace}
}

// Info returns the current state of s.
func (s *Sandbox) Info() runner.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := runner.Info{
		ID: s.id, Name: s.spec.Name, State: runner.Running, Created: s.created, Expires: s.lease.expires,
		Out: s.spec.Out, PID: s.init.pid, Execs: len(s.commands.running), Spec: s.spec, Receipt: s.receipt, Result: s.commands.last,
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

// sentReceipt caches the encoded receipt, which is sent with the results of many commands.
type sentReceipt struct {
	of     *runner.Receipt
	digest string
	text   []byte
}

// encodedReceipt returns the receipt's digest and, unless the caller has that receipt already, its text.
func (s *Sandbox) encodedReceipt(known string) (digest string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := &s.sent; t.of != s.receipt {
		b, err := json.Marshal(s.receipt)
		if err != nil {
			return "", nil
		}
		sum := sha256.Sum256(b)
		*t = sentReceipt{s.receipt, hex.EncodeToString(sum[:8]), b}
	}
	if s.sent.digest == known {
		return known, nil
	}
	return s.sent.digest, s.sent.text
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
		s.used()
	}
	n := s.files.own.notice
	opened := api.Opened{ID: s.id, Out: s.spec.Out, Restarted: n.restarted, Lacks: n.secrets}
	if s.receipt != nil { // nil only for a sandbox that was never built
		opened.Level = s.receipt.Level
	}
	return opened, nil
}

// takeNotice returns, only once, whether s was restarted and which of its secrets it lacks.
func (s *Sandbox) takeNotice() (n notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, s.files.own.notice = s.files.own.notice, notice{}
	return n
}

// Unpacked returns an error if layers of the image are not unpacked. Its caller unpacks them and calls again.
func (s *Sandbox) Unpacked() error { return s.files.image.unpacked() }

// Good locks the layers of a prepared sandbox for its owner. It returns false if its layers or its PID 1 are gone.
func (s *Sandbox) Good() bool {
	select {
	case <-s.init.peer.Done(): // its PID 1 was killed
		return false
	default:
		return s.spec.Rootfs == nil || s.files.image.holdAgain() == nil
	}
}
