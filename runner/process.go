package runner

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"sync"
	"syscall"

	"demesne/runner/wire"
)

// A command is one call and one event:
//
//	caller ── exec ─────▶ runner     argv, stdio, a tag
//	       ◀──── reply ──            it was started, or why not
//	       ◀──── ended ──            the tag, and the result
//
// or, for a sandbox that is made for it, run in the place of create and exec. Signal and
// resize go by the number in the reply. The call wait asks for the result of any command
// by that number, whoever started it, again and again.

// ExecRequest is the body of an exec call; its descriptors are stdin, stdout and
// stderr.
type ExecRequest struct {
	Sandbox string       `json:"sandbox"`
	Argv    []wire.Bytes `json:"argv"`
	Env     []wire.Bytes `json:"env,omitempty"`
	Dir     wire.Bytes   `json:"dir,omitempty"`
	User    *User        `json:"user,omitempty"`
	Timeout Duration     `json:"timeout,omitempty"`
	TTY     *Winsize     `json:"tty,omitempty"`

	// Tag is the caller's own number of the command: OpEnded comes with it. 0: it does not come.
	Tag uint64 `json:"tag,omitempty"`
	// Receipt asks for the sandbox's receipt, unless it is still the one of this digest. nil: it does not.
	Receipt *string `json:"receipt,omitempty"`
}

// ExecReply answers it, with the terminal as descriptor if one was asked for.
type ExecReply struct {
	Exec  uint64  `json:"exec"`
	PID   int     `json:"pid"` // inside the sandbox
	Trace []Stage `json:"trace"`

	Restarted bool `json:"restarted,omitempty"` // see Result

	Digest  string          `json:"digest,omitempty"`  // of the receipt, if it was asked for
	Receipt json.RawMessage `json:"receipt,omitempty"` // if it has another digest than the caller's
}

// ExecEnded is the event that tells how a command with a tag ended.
type ExecEnded struct {
	Tag    uint64  `json:"tag"`
	Result *Result `json:"result"`
}

// ExecTarget names a running command.
type ExecTarget struct {
	Sandbox string   `json:"sandbox"`
	Exec    uint64   `json:"exec"`
	Signal  int      `json:"signal,omitempty"`
	TTY     *Winsize `json:"tty,omitempty"`
}

// RunRequest is the body of a run call. Its descriptors are those of both its halves.
type RunRequest struct {
	Spec Spec        `json:"spec"`
	Exec ExecRequest `json:"exec"` // with no Sandbox
}

// RunReply answers it.
type RunReply struct {
	Created Created   `json:"created"`
	Exec    ExecReply `json:"exec"`
}

// endings are the commands that a client has started and not been told the end of.
type endings struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*ending
}

// ending is one of them.
type ending struct {
	tag    uint64
	done   chan struct{} // closed when result is there
	result *Result
}

func (e *endings) expect() *ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		e.open = map[uint64]*ending{}
	}
	e.last++
	end := &ending{tag: e.last, done: make(chan struct{})}
	e.open[end.tag] = end
	return end
}

// take returns an ending that is not expected any more, or nil.
func (e *endings) take(tag uint64) *ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := e.open[tag]
	delete(e.open, tag)
	return end
}

func (e *endings) told(m *wire.Message) {
	var ended ExecEnded
	if m.Decode(&ended) != nil || ended.Result == nil {
		return
	}
	if end := e.take(ended.Tag); end != nil {
		end.result = ended.Result
		close(end.done)
	}
}

// account is a sandbox's receipt as its caller has it.
type account struct {
	mu      sync.Mutex
	digest  string
	receipt *Receipt
}

// known is what the runner need not send again.
func (a *account) known() *string {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := a.digest
	return &digest
}

// settle returns the receipt that r is about, which may be the one that is known.
func (a *account) settle(r *ExecReply) (*Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(r.Receipt) > 0 {
		receipt := new(Receipt)
		if err := json.Unmarshal(r.Receipt, receipt); err != nil {
			return nil, err
		}
		a.digest, a.receipt = r.Digest, receipt
	}
	return a.receipt, nil
}

// request is a command as it travels.
func (cmd *Command) request(a *account, tag uint64) (ExecRequest, wire.Files) {
	req := ExecRequest{
		Argv: wire.ByteStrings(cmd.Argv), Env: wire.ByteStrings(cmd.Env),
		Dir: wire.Bytes(cmd.Dir), User: cmd.User, Timeout: Duration(cmd.Timeout), TTY: cmd.TTY, Tag: tag,
	}
	if cmd.Account {
		req.Receipt = a.known()
	}
	if cmd.TTY != nil {
		return req, wire.Files{}
	}
	return req, wire.Files{"stdin": cmd.Stdin, "stdout": cmd.Stdout, "stderr": cmd.Stderr}
}

// Exec starts a command, and the sandbox again if it has lost its processes. The error is a *wire.Error with CodeNotFound or
// CodeNotExecutable where the command is at fault. It may be called from several goroutines.
func (s *Sandbox) Exec(ctx context.Context, cmd Command) (*Process, error) {
	end := s.client.ends.expect()
	req, files := cmd.request(&s.account, end.tag)
	req.Sandbox = s.ID
	m, err := s.client.peer.CallMessage(ctx, OpExec, req, files)
	if hasCode(err, wire.CodeStopped) {
		if _, err = s.client.Open(ctx, s.ID); err == nil {
			m, err = s.client.peer.CallMessage(ctx, OpExec, req, files)
		}
	}
	if err != nil {
		s.client.ends.take(end.tag)
		return nil, s.client.lost(err)
	}
	defer m.Close()
	var reply ExecReply
	if err := m.Decode(&reply); err != nil {
		return nil, err
	}
	return s.process(&reply, m, end)
}

// Run makes a sandbox that is OneShot and starts a command in it: Create and Exec in one
// call. Where that fails, nothing of the sandbox is left. That the runner ended is an error of
// CodeGone only if it never heard of the call: then it may be made again.
func (c *Client) Run(ctx context.Context, spec Spec, cmd Command) (*Sandbox, *Process, error) {
	files, err := c.sources(&spec)
	if err != nil {
		return nil, nil, err
	}
	defer files.close()
	s := &Sandbox{Out: spec.Out, client: c}
	end := c.ends.expect()
	exec, stdio := cmd.request(&s.account, end.tag)
	maps.Copy(stdio, files.byName)
	var reply RunReply
	m, err := c.peer.CallMessage(ctx, OpRun, RunRequest{spec, exec}, stdio)
	if err == nil {
		defer m.Close()
		err = m.Decode(&reply)
	}
	if err != nil {
		c.ends.take(end.tag)
		if errors.Is(err, wire.ErrClosed) {
			return nil, nil, wire.Errorf(wire.CodeInternal, "run command: the runner ended")
		}
		return nil, nil, c.lost(err)
	}
	made := reply.Created
	s.ID, s.Level, s.Trace = made.ID, made.Level, append(c.start[:len(c.start):len(c.start)], made.Trace...)
	p, err := s.process(&reply.Exec, m, end)
	return s, p, err
}

// process is what was started, by the reply m.
func (s *Sandbox) process(r *ExecReply, m *wire.Message, end *ending) (*Process, error) {
	p := &Process{Trace: r.Trace, PID: r.PID, sandbox: s, exec: r.Exec, restarted: r.Restarted, end: end, tty: m.File("tty")}
	var err error
	if r.Digest != "" {
		p.receipt, err = s.account.settle(r)
	}
	return p, err
}

// Process is a command in a sandbox.
type Process struct {
	PID   int // inside the sandbox
	Trace []Stage

	sandbox   *Sandbox
	exec      uint64
	restarted bool
	receipt   *Receipt
	end       *ending // nil: somebody else started it
	tty       *os.File
}

// Terminal is the controlling end of the command's terminal, nil without one. The
// caller closes it.
func (p *Process) Terminal() *os.File { return p.tty }

// Signal sends sig to the command's process group.
func (p *Process) Signal(sig syscall.Signal) error {
	t := ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec, Signal: int(sig)}
	return p.sandbox.client.lost(p.sandbox.client.peer.Call(context.Background(), OpSignal, t, nil, nil))
}

// Resize tells the command's terminal its new size.
func (p *Process) Resize(w Winsize) error {
	t := ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec, TTY: &w}
	return p.sandbox.client.lost(p.sandbox.client.peer.Call(context.Background(), OpResize, t, nil, nil))
}

// Wait returns how the command ended. When the sandbox is OneShot it is gone by
// then: no process of it is left and /out is settled. A runner that died meanwhile
// makes a Result with Reason Lost, not an error.
func (p *Process) Wait(ctx context.Context) (*Result, error) {
	r, err := p.wait(ctx)
	if errors.Is(err, wire.ErrClosed) {
		r, err = Result{
			Sandbox: p.sandbox.ID, ExitCode: 125, Reason: Lost, Out: p.sandbox.Out,
			Detail: "the runner was killed",
		}, nil
	}
	if err != nil {
		return nil, err
	}
	r.Receipt, r.Restarted = p.receipt, p.restarted
	return &r, nil
}

// wait is until the event comes or, for somebody else's command, the answer.
func (p *Process) wait(ctx context.Context) (r Result, err error) {
	peer := p.sandbox.client.peer
	if p.end == nil {
		err = peer.Call(ctx, OpWait, ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec}, nil, &r)
		return r, err
	}
	select {
	case <-p.end.done:
		return *p.end.result, nil
	case <-ctx.Done():
		return r, ctx.Err()
	case <-peer.Done():
	}
	select {
	case <-p.end.done: // the last that it said
		return *p.end.result, nil
	default:
		return r, wire.ErrClosed
	}
}
