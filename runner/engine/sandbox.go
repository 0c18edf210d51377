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
	egress  *runner.Egress // with the fields that spec lacks; nil: no egress
	owner   *caller        // only for a one-shot sandbox
	asker   *caller        // answers questions about egress
	created time.Time
	began   time.Time // start of the current run; later than created after a restart

	// The parts of the sandbox, in the order in which raise makes them.
	kept   kept
	group  *limits.Group
	trusts *rootfs.Trust // nil: no additional certificate authority
	tree   *rootfs.Tree  // nil: the sandbox has no namespaces
	image  ofImage
	shared shared
	paths  paths
	net    *sandboxNetwork
	pid    int      // PID 1, in the runner's pid namespace
	mounts *os.File // its mount namespace
	guest  *ipc.Peer
	seen   seen // what was verified while it was made
	undo   undo
	late   undo // see undoLate

	spare   bool // made before its owner was known
	trace   []runner.Stage
	receipt *runner.Receipt
	sent    sentReceipt   // receipt as encoded; guarded by mu
	built   chan struct{} // closed when making it has succeeded or failed; only then may it be ended

	starting sync.RWMutex // read-locked to start a command, locked to pause all processes; taken before mu
	mu       sync.Mutex
	idle     idle
	life     life
	next     uint64
	primary  bool                  // the command that a one-shot sandbox ends with has been started
	execs    map[uint64]*execution // running
	last     *runner.Result
	verdict  runner.Reason // why the runner ended it; empty if it ended by itself
	detail   string
	ending   bool
	finished chan struct{} // closed when teardown is complete
}

// paths are the directories that a command sees. Without a mount namespace they are paths of the host.
type paths struct {
	in, out, workspace, home, tmp string
}

var inside = paths{in: "/in", out: "/out", workspace: "/workspace", home: "/root", tmp: "/tmp"}

// newSandbox returns a sandbox that is yet to be made.
func (e *Engine) newSandbox(id string, spec runner.Spec) *sandbox {
	now := time.Now()
	return &sandbox{
		e: e, id: id, spec: spec, created: now, began: now, paths: inside,
		execs: map[uint64]*execution{}, built: make(chan struct{}), finished: make(chan struct{}),
	}
}

// build makes s. On an error it removes everything except the files that s had before.
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

// abandon tears down a sandbox that no caller knows.
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
	i.Spec.Granted = "" // valid for the current run only
	if s.idle.paused != nil {
		i.State = runner.Paused
	}
	if s.done() {
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

// accountFor returns the receipt's digest and, unless the caller has that receipt already, its text.
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

// open waits until s is made and describes it for a caller that found it.
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
