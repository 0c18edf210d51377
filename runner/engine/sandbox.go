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
	"demesne/runner/freeze"
	"demesne/runner/keep"
	"demesne/runner/limits"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// defaultTTL is how long a persistent sandbox lives when nobody says otherwise.
const defaultTTL = 48 * time.Hour

// sandbox is a live sandbox.
type sandbox struct {
	e       *Engine
	owner   *caller // of a one-shot one
	id      string
	spec    runner.Spec
	egress  *runner.Egress // with what spec has not any more; nil: no way out
	asker   *caller        // who answers questions about egress
	created time.Time
	began   time.Time // this time; later than created if it was restarted
	expires time.Time
	receipt *runner.Receipt
	sent    sentReceipt // receipt as it travels; under mu
	trace   []runner.Stage

	tree  *rootfs.Tree
	out   *os.File // /out, through the sandbox's own mount
	work  *os.File // /workspace, if it is the caller's
	upper *os.File // what is written over an image, if it is on a disk
	group *limits.Group
	guest *wire.Peer
	net   *network
	pid   int // of PID 1, in our pid namespace

	mounts *os.File // its mount namespace

	spare    bool         // made before it was known whose it will be
	layers   []inode      // that it was mounted on then
	seen     seen         // while it was made
	takeBack func() error // lets /out be the caller's alone again; nil: it is
	paths    paths

	trusts *rootfs.Trust // nil: nobody besides

	scratch string        // the directory that upper is
	stacked time.Duration // of an image: how long its layers took to be opened and mounted
	undo    undo
	late    undo // see undoLate

	box       *keep.Box // of a persistent one, if it can have one
	base      []string  // of package keep, below what it writes
	policy    string    // of one with a key: what it was made with
	keptWhy   error     // its files are not kept
	onDisk    bool      // what it writes is in box
	written   *os.File  // that
	restarted bool
	resting   *time.Timer    // until it is frozen; this and frozen are under mu
	frozen    *freeze.Frozen // what holds still because nobody uses s
	quiet     bool           // nothing ran in it when it was ended
	news      bool           // that it was restarted, until a command has been started; under mu
	clock     *time.Timer

	mu       sync.Mutex
	next     uint64
	primary  bool                  // the command a one-shot ends with has been started
	execs    map[uint64]*execution // running
	last     *runner.Result
	verdict  runner.Reason // why we ended it, if not by itself
	detail   string
	ending   bool
	stay     bool          // its files, when it ends
	built    chan struct{} // closed when making it is over, well or not: only then may it be ended
	finished chan struct{} // closed when nothing is left
}

// paths are the places a command finds; they differ where there is no mount
// namespace.
type paths struct {
	in, out, workspace, home, tmp string
}

var inside = paths{in: "/in", out: "/out", workspace: "/workspace", home: "/root", tmp: "/tmp"}

func newID() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (s *sandbox) info() runner.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := runner.Info{
		ID: s.id, Name: s.spec.Name, State: runner.Running, Created: s.created, Expires: s.expires,
		Out: s.spec.Out, PID: s.pid, Execs: len(s.execs), Spec: s.spec, Receipt: s.receipt, Result: s.last,
	}
	if s.frozen != nil {
		i.State = runner.Frozen
	}
	if s.over() {
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
func (s *sandbox) open() (protocol.Opened, error) {
	<-s.built
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return protocol.Opened{}, s.goneFor("open sandbox")
	}
	return protocol.Opened{ID: s.id, Level: s.receipt.Level, Out: s.spec.Out, Restarted: s.news}, nil
}

// goneFor is what is told to who comes too late. s.mu is held, and let go while s ends.
func (s *sandbox) goneFor(what string) error {
	if !s.stay {
		return wire.Errorf(wire.CodeGone, "%s %q: it has ended", what, s.id)
	}
	s.mu.Unlock()
	<-s.finished // only then can it be restarted
	s.mu.Lock()
	return wire.Errorf(wire.CodeStopped, "%s %q: it has no processes, and its files are kept", what, s.id)
}

// over says whether nothing is left of s but its record. Its name is free by then,
// which who was told its result may know.
func (s *sandbox) over() bool {
	select {
	case <-s.finished:
		return true
	default:
		return false
	}
}

// condemn ends s for a reason that its commands' results give.
func (s *sandbox) condemn(reason runner.Reason, detail string) {
	s.mu.Lock()
	if s.verdict == "" {
		s.verdict, s.detail = reason, detail
	}
	s.mu.Unlock()
	s.end(detail)
}

// end takes s down and forgets it.
func (s *sandbox) end(why string) {
	if s.takeDown(why) {
		s.e.forget(s)
	}
}

// takeDown ends first every process, then what they used. It returns when nothing is
// left, whoever called it first, and says whether that was this call.
func (s *sandbox) takeDown(why string) bool {
	<-s.built
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		<-s.finished
		return false
	}
	s.ending = true
	if s.verdict == "" {
		s.verdict, s.detail = runner.Lost, why
	}
	s.mu.Unlock()
	s.takeApart()
	return true
}

// takeApart is the rest of takeDown, for whoever has set ending.
func (s *sandbox) takeApart() {
	s.undo.run()
	if s.owner != nil {
		s.owner.disown(s)
	}
	s.mu.Lock()
	left := s.execs
	s.execs = nil
	s.wake()
	s.mu.Unlock()
	for _, x := range left {
		x.finish(nil)
		go x.tell()
	}
	close(s.finished)
}

// undoLate is undo.add for what no result waits for: our own view of the mounts, which goes
// slowly, and files of our own, which nobody else sees. What is of a disk, others may be waiting for.
func (s *sandbox) undoLate(f func()) {
	if s.spec.Rootfs == nil && s.spec.Lifetime == runner.OneShot {
		s.late.add(f)
		return
	}
	s.undo.add(f)
}

// forget is the last of a sandbox, when its commands' results are told.
func (e *Engine) forget(s *sandbox) {
	s.late.run()
	if !s.stays() {
		e.state.ended(s.info())
	}
	e.drop(s)
	e.mu.Lock()
	for len(e.ended) > 1024 {
		delete(e.recent, e.ended[0])
		e.ended = e.ended[1:]
	}
	e.mu.Unlock()
	e.maybeIdle()
	e.refillSoon()
}
