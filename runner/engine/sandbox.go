package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"sync"
	"time"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/limits"
)

// sandbox is one sandbox, from before it is made until nothing is left of it.
type sandbox struct {
	e       *Engine
	id      string
	spec    runner.Spec
	egress  *runner.Egress // with what spec has not any more; nil: no way out
	owner   *caller        // of a one-shot one
	asker   *caller        // who answers questions about egress
	created time.Time
	began   time.Time // this time; later than created if it was restarted

	// What it is made of, in the order in which raise makes it.
	kept   kept
	group  *limits.Group
	trusts *rootfs.Trust // nil: nobody besides
	tree   *rootfs.Tree  // nil: it has no namespaces
	image  ofImage
	shared shared
	paths  paths
	net    *sandboxNetwork
	pid    int      // of PID 1, in our pid namespace
	mounts *os.File // its mount namespace
	guest  *ipc.Peer
	seen   seen // while it was made
	undo   undo
	late   undo // see undoLate

	spare   bool // made before it was known whose it will be
	trace   []runner.Stage
	receipt *runner.Receipt
	sent    sentReceipt   // receipt as it travels; under mu
	built   chan struct{} // closed when making it is over, well or not: only then may it be ended

	starting sync.RWMutex // held to start a command, or alone by who has all hold still; before mu
	mu       sync.Mutex
	idle     idle
	life     life
	next     uint64
	primary  bool                  // the command a one-shot ends with has been started
	execs    map[uint64]*execution // running
	last     *runner.Result
	verdict  runner.Reason // why we ended it, if not by itself
	detail   string
	ending   bool
	finished chan struct{} // closed when nothing is left
}

// paths are the places a command finds; they differ where there is no mount
// namespace.
type paths struct {
	in, out, workspace, home, tmp string
}

var inside = paths{in: "/in", out: "/out", workspace: "/workspace", home: "/root", tmp: "/tmp"}

// newSandbox is a sandbox before it is made.
func (e *Engine) newSandbox(id string, spec runner.Spec) *sandbox {
	now := time.Now()
	return &sandbox{
		e: e, id: id, spec: spec, created: now, began: now, paths: inside,
		execs: map[uint64]*execution{}, built: make(chan struct{}), finished: make(chan struct{}),
	}
}

// build makes s. On an error nothing is left of it but the files it had before.
func (s *sandbox) build(m *ipc.Message) error {
	err := s.make(m)
	if err == nil {
		err = s.moveIn()
	}
	if err == nil {
		return nil
	}
	s.abandon()
	s.e.drop(s)
	s.e.maybeIdle() // the caller may have left meanwhile
	return err
}

// abandon takes down a sandbox that nobody knew of.
func (s *sandbox) abandon() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	close(s.built)
	s.undo.run()
	s.release()
	s.late.run()
	close(s.finished)
}

func newID() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (s *sandbox) info() runner.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := runner.Info{
		ID: s.id, Name: s.spec.Name, State: runner.Running, Created: s.created, Expires: s.life.expires,
		Out: s.spec.Out, PID: s.pid, Execs: len(s.execs), Spec: s.spec, Receipt: s.receipt, Result: s.last,
	}
	i.Spec.Granted = "" // of this time only
	if s.idle.frozen != nil {
		i.State = runner.Frozen
	}
	if s.done() {
		i.State, i.PID = runner.Ended, 0
	}
	return i
}

// sentReceipt is a receipt as it is sent with the results of many commands.
type sentReceipt struct {
	of     *runner.Receipt
	digest string
	text   []byte
}

// accountFor is the receipt's digest and, unless the caller has that receipt, its text.
func (s *sandbox) accountFor(known string) (digest string, text []byte) {
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

// open says what s is to whoever found it, once it is made.
func (s *sandbox) open() (api.Opened, error) {
	<-s.built
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return api.Opened{}, s.endedErr("open sandbox")
	}
	if s.life.maker != nil {
		s.used()
	}
	return api.Opened{ID: s.id, Level: s.receipt.Level, Out: s.spec.Out, Restarted: s.kept.news, Lacks: s.kept.lacks}, nil
}
