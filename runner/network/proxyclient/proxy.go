package proxyclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// callTime bounds one call. It allows for a stalled machine; it is not a latency target.
const callTime = 30 * time.Second

// Proxy manages the demesne-proxy process of a runner. The zero value has no process; the first sandbox starts one.
// It is safe for concurrent use.
type Proxy struct {
	mu       sync.Mutex
	program  *os.File
	now      *process
	sessions map[string]*ProxySession
	tries    int // processes that died at once, in a row, before now
	closed   bool
}

// ProxySession is the egress of one sandbox.
type ProxySession struct {
	p      *Proxy
	id     string
	files  ipc.Files // the log, and the files of usage records
	v4, v6 netip.Prefix
	ask    func(name string, port uint16)
	member runner.Member
	dial   Dial

	mu      sync.Mutex
	egress  runner.Egress // current rules
	plan    Plan
	listen  *Listen // nil until Listen
	sockets ipc.Files
	named   int              // how many of sockets are for names
	before  []runner.Blocked // by processes that have ended
	now     []runner.Blocked // by the current process, at its last report
	spent   []Spent          // with processes that have ended
}

// Dial connects to a TCP port of a member of the sandbox's group.
type Dial func(ctx context.Context, member string, port uint16) (*os.File, error)

// Config configures a ProxySession.
type Config struct {
	Sandbox string
	Egress  runner.Egress // with Upstream, Secrets and the credentials of Routes, which stay in memory
	V4, V6  netip.Prefix
	Log     *os.File                       // may be nil; the ProxySession owns it
	Records ipc.Files                      // for usage records, by FileRecord, and gates, by api.FileGate; the ProxySession owns them
	Ask     func(name string, port uint16) // called if Egress.Ask is set; returns when the policy is up to date
	Member  runner.Member                  // zero: the sandbox is in no group
	Dial    Dial                           // nil: the sandbox is in no group
	Sockets *Sockets                       // to serve at once; nil: call Listen
}

// Sockets are the sockets through which a sandbox reaches the proxy. The caller owns the files and keeps them open until Close.
type Sockets struct {
	Listen
	Files ipc.Files
	Named []*os.File // for names
}

// Program sets the program to execute. Proxy keeps the first one and closes later ones. f may be nil.
func (p *Proxy) Program(f *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		p.program = f
	} else if f != nil {
		f.Close()
	}
}

// Open makes a session. An error caused by the Egress has [ipc.CodeInvalid].
func (p *Proxy) Open(c Config) (*ProxySession, error) {
	o := &ProxySession{p: p, id: c.Sandbox, files: ipc.Files{FileLog: c.Log}, v4: c.V4, v6: c.V6, ask: c.Ask, member: c.Member, dial: c.Dial, egress: c.Egress}
	o.egress.Trust = runner.Trust{} // for the sandbox's files only
	maps.Copy(o.files, c.Records)
	if c.Sockets != nil {
		o.take(*c.Sockets)
	}
	for tries := 1; ; tries++ {
		now, err := p.live()
		if err == nil {
			o.plan, err = o.serve(now)
		}
		switch {
		case err == nil && p.keep(o, now):
			return o, nil
		case err != nil && (!errors.Is(err, ipc.ErrClosed) || tries == 3):
			o.closeFiles()
			return nil, err
		}
	}
}

// keep registers o and reports true, unless now is no longer the current process.
func (p *Proxy) keep(o *ProxySession, now *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != now {
		return false
	}
	if p.sessions == nil {
		p.sessions = map[string]*ProxySession{}
	}
	p.sessions[o.id] = o
	return true
}

// Plan returns the plan for an Egress.
func (p *Proxy) Plan(e runner.Egress) (plan Plan, err error) {
	err = p.call(OpPlan, e, nil, &plan)
	return plan, err
}

// Close ends the process and starts no other one.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	now := p.now
	p.mu.Unlock()
	if now != nil {
		now.end()
	}
}

// live returns the current process. It starts one if none is running.
func (p *Proxy) live() (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil && !p.now.ended() {
		return p.now, nil
	}
	switch {
	case p.closed:
		return nil, fmt.Errorf("start demesne-proxy: %w", ipc.ErrClosed)
	case p.program == nil:
		return nil, errors.New("start demesne-proxy: it is not installed beside demesne-runner")
	}
	now, err := start(p.program, p.tries, p.handle)
	if err != nil {
		return nil, fmt.Errorf("start demesne-proxy: %w", err)
	}
	p.inherit(p.now)
	for _, o := range p.sessions {
		if err := o.again(now); err != nil {
			now.end()
			p.inherit(now)
			return nil, fmt.Errorf("start demesne-proxy: %w", err)
		}
	}
	p.now = now
	go p.attend(now)
	return now, nil
}

// inherit makes all sandboxes take over the notes of a process that has ended. gone may be nil.
func (p *Proxy) inherit(gone *process) {
	for _, o := range p.sessions {
		if gone != nil {
			o.inherit(gone)
		}
	}
}

func (p *process) ended() bool {
	select {
	case <-p.peer.Done():
		return true
	default:
		return false
	}
}

// attend replaces a process that died while sandboxes need one. It waits longer each time that a process dies at
// once.
func (p *Proxy) attend(now *process) {
	<-now.peer.Done()
	now.end()
	for tries := now.tries(); p.needed(now); tries++ {
		time.Sleep(pause(tries))
		p.mu.Lock()
		p.tries = tries + 1
		p.mu.Unlock()
		_, err := p.live()
		if err == nil {
			return
		}
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
	}
}

// needed reports whether old is still the current process and sandboxes need a successor.
func (p *Proxy) needed(old *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && p.now == old && len(p.sessions) > 0
}

// pause returns the delay after that many processes in a row died at once. It is pure.
func pause(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	return min(time.Millisecond<<min(tries, 20), time.Second)
}

// handle answers the proxy's calls.
func (p *Proxy) handle(peer *ipc.Peer, m *ipc.Message) {
	defer m.Close()
	var q Question
	if m.Op != OpAsk && m.Op != OpDial || m.Decode(&q) != nil {
		return
	}
	p.mu.Lock()
	o := p.sessions[q.Sandbox]
	p.mu.Unlock()
	if m.Op == OpDial {
		go o.connect(peer, m, q)
		return
	}
	go func() {
		if o != nil && o.ask != nil {
			o.ask(q.Name, q.Port)
		}
		peer.Reply(m, nil, nil)
	}()
}

// connectTime bounds a connection to a member, which is on this machine.
const connectTime = 10 * time.Second

// connect answers m with a connection to a member. o may be nil.
func (o *ProxySession) connect(peer *ipc.Peer, m *ipc.Message, q Question) {
	if o == nil || o.dial == nil {
		peer.Fail(m, ipc.NoSuchSandbox(q.Name))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	f, err := o.dial(ctx, q.Name, q.Port)
	if err != nil {
		peer.Fail(m, err)
		return
	}
	defer f.Close()
	peer.Reply(m, nil, ipc.Files{FileDialled: f})
}

// call calls the current process, or its successor if that one dies. Every call is idempotent.
func (p *Proxy) call(op ipc.Op, body any, files ipc.Files, reply any) error {
	for range 3 {
		now, err := p.live()
		if err != nil {
			return err
		}
		if err = now.call(op, body, files, reply); !errors.Is(err, ipc.ErrClosed) {
			return err
		}
	}
	return fmt.Errorf("ask demesne-proxy: %w", ipc.ErrClosed)
}

// call returns ipc.ErrClosed when the process has ended.
func (p *process) call(op ipc.Op, body any, files ipc.Files, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	err := p.peer.Call(ctx, op, body, files, reply)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		<-p.peer.Done()
		return ipc.ErrClosed
	}
	return err
}
