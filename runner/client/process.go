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

// endings holds the commands of a client whose end has not been reported.
type endings struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*ending
}

// ending is a command whose end has not been reported.
type ending struct {
	tag    uint64
	done   chan struct{} // closed when result is set
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

// take removes and returns the ending with that tag, or returns nil.
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

// account is the caller's copy of a sandbox's receipt.
type account struct {
	mu      sync.Mutex
	digest  string
	receipt *runner.Receipt
}

// known returns the digest of the receipt that the runner need not send again.
func (a *account) known() *string {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := a.digest
	return &digest
}

// settle returns the receipt for the reply r. It stores a new receipt, or returns the stored one.
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

// request converts a command to an exec call and its descriptors.
func request(cmd *runner.Command, a *account, tag uint64) (api.ExecRequest, ipc.Files) {
	req := api.ExecRequest{
		Argv: ipc.ByteStrings(cmd.Argv), Env: ipc.ByteStrings(cmd.Env), Path: ipc.ByteStrings(cmd.Path),
		Dir: ipc.Bytes(cmd.Dir), User: cmd.User, Timeout: runner.Duration(cmd.Timeout), TTY: cmd.TTY, Tag: tag, Secrets: cmd.Secrets,
		Alone: cmd.Alone,
	}
	for _, argv := range cmd.Else {
		req.Else = append(req.Else, ipc.ByteStrings(argv))
	}
	if cmd.Account {
		req.Receipt = a.known()
	}
	if cmd.TTY != nil {
		return req, ipc.Files{}
	}
	files, names := ipc.Files{}, ipc.Descriptors()
	for i, f := range append([]*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr}, cmd.Extra...)[:min(3+len(cmd.Extra), len(names))] {
		files[names[i]] = f
	}
	return req, files
}

// Exec combines [Client.Open] and [Sandbox.Exec], in one call if the sandbox is live.
func (c *Client) Exec(ctx context.Context, idOrName string, cmd runner.Command) (*Sandbox, *Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	c = c.of(ctx, idOrName)
	ctx = context.WithoutCancel(ctx) // as in Sandbox.Exec
	s := &Sandbox{ID: idOrName, client: c}
	end := c.ends.expect()
	m, err := s.call(ctx, &cmd, end, how{open: true})
	if hasCode(err, ipc.CodeNoSuchSandbox) || hasCode(err, ipc.CodeStopped) { // open reports the reason, or restarts it
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

// Exec starts a command. It first restarts the sandbox if that has lost its processes. The error is an *ipc.Error
// with CommandNotFound or CodeNotExecutable if the command is at fault. Exec is safe for concurrent use.
//
// Exec waits for the reply even if ctx ends meanwhile. Otherwise the command could run on in a persistent sandbox,
// and no caller would know its number to signal it.
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

// how holds the options of an exec call: see api.ExecRequest.
type how struct{ open, silent bool }

// call sends the exec call of a command. If it fails, call removes end.
func (s *Sandbox) call(ctx context.Context, cmd *runner.Command, end *ending, h how) (*ipc.Message, error) {
	req, files := request(cmd, &s.account, end.tag)
	req.Sandbox, req.Open, req.Silent = s.ID, h.open, h.silent
	m, err := s.client.peer.CallMessage(ctx, api.OpExec, req, files)
	if err != nil {
		s.client.ends.take(end.tag)
	}
	return m, s.client.lost(err)
}

// started returns the process that the reply m describes.
func (s *Sandbox) started(m *ipc.Message, end *ending) (*Process, error) {
	defer m.Close()
	var reply api.ExecReply
	if err := m.Decode(&reply); err != nil {
		return nil, err
	}
	if o := reply.Opened; o != nil {
		s.ID, s.Level, s.Out, s.Restarted, s.MissingSecrets, s.Unserved = o.ID, o.Level, o.Out, o.Restarted, o.MissingSecrets, unserved(o.Served)
	}
	return s.process(&reply, m, end)
}

// Run makes a one-shot sandbox and starts a command in it: Create and Exec in one call. If it fails, nothing of the
// sandbox remains. If the runner ended, the error has CodeGone only if the runner never received the call, so that
// the call may be repeated.
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
	m, err := c.peer.CallMessage(ctx, api.OpRun, api.RunRequest{Spec: spec, Exec: exec}, stdio)
	if err == nil {
		defer m.Close()
		err = m.Decode(&reply)
	}
	if err != nil {
		c.ends.take(end.tag)
		files.refused(spec, err)
		if errors.Is(err, ipc.ErrClosed) && !c.young.Load() {
			return nil, nil, ipc.Errorf(ipc.CodeInternal, "run command: the runner ended")
		}
		return nil, nil, c.lost(err)
	}
	made := reply.Created
	s.ID, s.Level, s.Trace = made.ID, made.Level, append(c.start[:len(c.start):len(c.start)], made.Trace...)
	s.Unmapped = made.Unmapped
	s.listeners.take(m, listens(spec.Egress))
	p, err := s.process(&reply.Exec, m, end)
	return s, p, err
}

// process returns the Process for the reply m, whose body holds r.
func (s *Sandbox) process(r *api.ExecReply, m *ipc.Message, end *ending) (*Process, error) {
	p := &Process{Trace: r.Trace, PID: r.PID, sandbox: s, exec: r.Exec, restarted: r.Restarted, lacks: r.MissingSecrets, end: end, tty: m.File("tty")}
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
	end       *ending // nil: another client started it
	tty       *os.File
}

// Terminal returns the controlling end of the command's terminal, or nil if it has none. The caller closes it.
func (p *Process) Terminal() *os.File { return p.tty }

// Signal sends sig to the command's process group.
func (p *Process) Signal(sig syscall.Signal) error {
	t := api.ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec, Signal: int(sig)}
	return p.sandbox.client.lost(p.sandbox.client.peer.Call(context.Background(), api.OpSignal, t, nil, nil))
}

// Resize sets the size of the command's terminal.
func (p *Process) Resize(w runner.Winsize) error {
	t := api.ExecTarget{Sandbox: p.sandbox.ID, Exec: p.exec, TTY: &w}
	return p.sandbox.client.lost(p.sandbox.client.peer.Call(context.Background(), api.OpResize, t, nil, nil))
}

// Wait waits for the command to end and returns its result. A one-shot sandbox is gone by then: no process of it
// remains and /out is settled. If the runner died meanwhile, Wait returns a Result with Reason Lost instead of an
// error.
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

// wait waits for the event or, for another client's command, calls the runner.
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
	case <-p.end.done: // the event may have arrived just before the end
		return *p.end.result, nil
	default:
		return r, ipc.ErrClosed
	}
}
