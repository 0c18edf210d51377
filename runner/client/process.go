package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"sync"
	"syscall"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

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
	result *runner.Result
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

func (e *endings) told(m *ipc.Message) {
	var ended api.ExecEnded
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
	receipt *runner.Receipt
}

// known is what the runner need not send again.
func (a *account) known() *string {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := a.digest
	return &digest
}

// settle returns the receipt that r is about, which may be the one that is known.
func (a *account) settle(r *api.ExecReply) (*runner.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(r.Receipt) > 0 {
		receipt := new(runner.Receipt)
		if err := json.Unmarshal(r.Receipt, receipt); err != nil {
			return nil, err
		}
		a.digest, a.receipt = r.Digest, receipt
	}
	return a.receipt, nil
}

// request is a command as it travels.
func request(cmd *runner.Command, a *account, tag uint64) (api.ExecRequest, ipc.Files) {
	req := api.ExecRequest{
		Argv: ipc.ByteStrings(cmd.Argv), Env: ipc.ByteStrings(cmd.Env),
		Dir: ipc.Bytes(cmd.Dir), User: cmd.User, Timeout: runner.Duration(cmd.Timeout), TTY: cmd.TTY, Tag: tag, Secrets: cmd.Secrets,
	}
	if cmd.Account {
		req.Receipt = a.known()
	}
	if cmd.TTY != nil {
		return req, ipc.Files{}
	}
	return req, ipc.Files{"stdin": cmd.Stdin, "stdout": cmd.Stdout, "stderr": cmd.Stderr}
}

// Exec is [Client.Open] and [Sandbox.Exec]: in one call, if the sandbox lives.
func (c *Client) Exec(ctx context.Context, idOrName string, cmd runner.Command) (*Sandbox, *Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	c = c.of(ctx, idOrName)
	ctx = context.WithoutCancel(ctx) // as Sandbox.Exec
	s := &Sandbox{ID: idOrName, client: c}
	end := c.ends.expect()
	m, err := s.call(ctx, &cmd, end, how{open: true})
	if hasCode(err, ipc.NoSuchSandbox) || hasCode(err, ipc.CodeStopped) { // Open knows why, or what to do
		if s, err = c.open(ctx, idOrName); err != nil {
			return nil, nil, err
		}
		p, err := s.Exec(ctx, cmd)
		return s, p, err
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := s.started(m, end)
	return s, p, err
}

// Exec starts a command, and the sandbox again if it has lost its processes. The error is a *ipc.Error with CodeNotFound or
// CodeNotExecutable where the command is at fault. It may be called from several goroutines.
//
// Whoever has asked for a command is told of it, also when ctx ends meanwhile: in a sandbox that stays it would run on, and
// nobody could say what is to be signalled.
func (s *Sandbox) Exec(ctx context.Context, cmd runner.Command) (*Process, error) {
	return s.exec(ctx, cmd, how{})
}

func (s *Sandbox) exec(ctx context.Context, cmd runner.Command, h how) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	end := s.client.ends.expect()
	m, err := s.call(ctx, &cmd, end, h)
	if hasCode(err, ipc.CodeStopped) {
		if _, err = s.client.open(ctx, s.ID); err == nil {
			end = s.client.ends.expect()
			m, err = s.call(ctx, &cmd, end, h)
		}
	}
	if err != nil {
		return nil, err
	}
	return s.started(m, end)
}

// how says what a call of a command is besides: see api.ExecRequest.
type how struct{ open, silent bool }

// call is the call of a command, of which nothing is expected when it fails.
func (s *Sandbox) call(ctx context.Context, cmd *runner.Command, end *ending, h how) (*ipc.Message, error) {
	req, files := request(cmd, &s.account, end.tag)
	req.Sandbox, req.Open, req.Silent = s.ID, h.open, h.silent
	go s.client.types.Do(learnTypes)
	m, err := s.client.peer.CallMessage(ctx, api.OpExec, req, files)
	if err != nil {
		s.client.ends.take(end.tag)
	}
	return m, s.client.lost(err)
}

// started is what m tells of.
func (s *Sandbox) started(m *ipc.Message, end *ending) (*Process, error) {
	defer m.Close()
	var reply api.ExecReply
	if err := m.Decode(&reply); err != nil {
		return nil, err
	}
	if o := reply.Opened; o != nil {
		s.ID, s.Level, s.Out, s.Restarted, s.Lacks = o.ID, o.Level, o.Out, o.Restarted, o.Lacks
	}
	return s.process(&reply, m, end)
}

// Run makes a sandbox that is OneShot and starts a command in it: Create and Exec in one
// call. Where that fails, nothing of the sandbox is left. That the runner ended is an error of
// CodeGone only if it never heard of the call: then it may be made again.
func (c *Client) Run(ctx context.Context, spec runner.Spec, cmd runner.Command) (*Sandbox, *Process, error) {
	files, err := c.sources(&spec)
	if err != nil {
		return nil, nil, err
	}
	defer files.close()
	s := &Sandbox{Out: spec.Out, client: c}
	end := c.ends.expect()
	exec, stdio := request(&cmd, &s.account, end.tag)
	maps.Copy(stdio, files.byName)
	var reply api.RunReply
	go c.types.Do(learnTypes)
	m, err := c.peer.CallMessage(ctx, api.OpRun, api.RunRequest{Spec: spec, Exec: exec}, stdio)
	if err == nil {
		defer m.Close()
		err = m.Decode(&reply)
	}
	if err != nil {
		c.ends.take(end.tag)
		c.refused(files, spec, err)
		if errors.Is(err, ipc.ErrClosed) && !c.young.Load() {
			return nil, nil, ipc.Errorf(ipc.CodeInternal, "run command: the runner ended")
		}
		return nil, nil, c.lost(err)
	}
	made := reply.Created
	s.ID, s.Level, s.Trace = made.ID, made.Level, append(c.start[:len(c.start):len(c.start)], made.Trace...)
	p, err := s.process(&reply.Exec, m, end)
	return s, p, err
}

// process is what was started, by the reply m.
func (s *Sandbox) process(r *api.ExecReply, m *ipc.Message, end *ending) (*Process, error) {
	p := &Process{Trace: r.Trace, PID: r.PID, sandbox: s, exec: r.Exec, restarted: r.Restarted, lacks: r.Lacks, end: end, tty: m.File("tty")}
	var err error
	if r.Digest != "" {
		p.receipt, err = s.account.settle(r)
	}
	return p, err
}

// Process is a command in a sandbox.
type Process struct {
	PID   int // inside the sandbox
	Trace []runner.Stage

	sandbox   *Sandbox
	exec      uint64
	restarted bool
	lacks     []string
	receipt   *runner.Receipt
	end       *ending // nil: somebody else started it
	tty       *os.File
}

// Terminal is the controlling end of the command's terminal, nil without one. The
// caller closes it.
func (p *Process) Terminal() *os.File { return p.tty }

// Signal sends sig to the command's process group.
func (p *Process) Signal(sig syscall.Signal) error {
	t := api.ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec, Signal: int(sig)}
	return p.sandbox.client.lost(p.sandbox.client.peer.Call(context.Background(), api.OpSignal, t, nil, nil))
}

// Resize tells the command's terminal its new size.
func (p *Process) Resize(w runner.Winsize) error {
	t := api.ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec, TTY: &w}
	return p.sandbox.client.lost(p.sandbox.client.peer.Call(context.Background(), api.OpResize, t, nil, nil))
}

// Wait returns how the command ended. When the sandbox is OneShot it is gone by
// then: no process of it is left and /out is settled. A runner that died meanwhile
// makes a Result with Reason Lost, not an error.
func (p *Process) Wait(ctx context.Context) (*runner.Result, error) {
	r, err := p.wait(ctx)
	if errors.Is(err, ipc.ErrClosed) {
		r, err = runner.Result{
			Sandbox: p.sandbox.ID, ExitCode: 125, Reason: runner.Lost, Out: p.sandbox.Out,
			Detail: "the runner was killed",
		}, nil
	}
	if err != nil {
		return nil, err
	}
	r.Receipt, r.Restarted, r.MissingSecrets, r.Replaced = p.receipt, p.restarted, p.lacks, p.sandbox.Replaced
	return &r, nil
}

// wait is until the event comes or, for somebody else's command, the answer.
func (p *Process) wait(ctx context.Context) (r runner.Result, err error) {
	peer := p.sandbox.client.peer
	if p.end == nil {
		err = peer.Call(ctx, api.OpWait, api.ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec}, nil, &r)
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
		return r, ipc.ErrClosed
	}
}
