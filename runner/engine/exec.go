package engine

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

type execKey struct {
	sandbox string
	exec    uint64
}

// execution is a command in a sandbox, from its start until its result is read.
type execution struct {
	s       *sandbox
	id      uint64
	started time.Time
	tty     *os.File // the runner's copy, for resize and attach
	screen  screen   // of tty
	timer   *time.Timer
	blocked []runner.Blocked // denied before it started
	primary bool             // a one-shot sandbox ends with this command
	asker   *caller          // gets the end of the command,
	tag     uint64           // under this tag; 0: no notice
	begun   bool             // PID 1 has started it; guarded by the sandbox's mu

	once   sync.Once
	done   chan struct{} // closed when result is set
	result *runner.Result

	mu      sync.Mutex
	timeout bool
}

// exec starts a command in a live sandbox.
func (c *caller) exec(req api.ExecRequest, m *ipc.Message) (*api.ExecReply, ipc.Files, error) {
	s, rec, err := c.e.locate(req.Sandbox)
	if err == nil && s == nil {
		err = stopped(rec)
	}
	if err != nil {
		return nil, nil, err
	}
	if !req.Open {
		return s.execute(c, req, m)
	}
	opened, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	reply, files, err := s.execute(c, req, m)
	if err == nil {
		reply.Opened = &opened
	}
	return reply, files, err
}

// execute starts a command and returns its number, and its terminal if it has one.
func (s *sandbox) execute(c *caller, req api.ExecRequest, m *ipc.Message) (*api.ExecReply, ipc.Files, error) {
	if len(req.Argv) == 0 || len(req.Argv[0]) == 0 {
		return nil, nil, ipc.Errorf(ipc.CodeInvalid, "execute command: it is empty")
	}
	if err := s.hasSecrets(req.Secrets); err != nil {
		return nil, nil, err
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	x, err := s.register(c, req.Tag)
	if err != nil {
		return nil, nil, err
	}
	pid, reply, err := x.begin(c, req, m)
	if err != nil {
		s.unregister(x)
		return nil, nil, err
	}
	x.arm(time.Duration(req.Timeout))
	if x.tty != nil {
		x.leaveIfGone(c)
	}
	s.mu.Lock()
	x.begun = true
	if x.tty == nil && c.left() { // c left before begun was set, so Engine.left skipped x
		go x.kill(initTimeout)
	}
	s.mu.Unlock()
	took := []runner.Stage{{Name: "exec", MS: ms(time.Since(x.started))}}
	started := &api.ExecReply{Exec: x.id, PID: pid, Trace: took}
	if !req.Silent {
		started.Restarted, started.Lacks = s.takeNews()
	}
	if req.Receipt != nil {
		started.Digest, started.Receipt = s.accountFor(*req.Receipt)
	}
	return started, reply, nil
}

// takeNews returns, only once, whether s was restarted and which of its secrets it lacks.
func (s *sandbox) takeNews() (restarted bool, lacks []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	restarted, lacks = s.kept.news, s.kept.lacks
	s.kept.news, s.kept.lacks = false, nil
	return restarted, lacks
}

// begin makes PID 1 start x. reply has the terminal of x, if it has one.
func (x *execution) begin(c *caller, req api.ExecRequest, m *ipc.Message) (pid int, reply ipc.Files, err error) {
	g, err := x.s.guestExec(x, req)
	if err != nil {
		return 0, nil, err
	}
	reply = ipc.Files{}
	stdio := ipc.Files{}
	if req.TTY != nil {
		if err := x.openTTY(c, req, &g); err != nil {
			return 0, nil, err
		}
		if reply["tty"], err = dup(x.tty); err != nil {
			return 0, nil, err
		}
	} else {
		for _, name := range []string{"stdin", "stdout", "stderr"} {
			stdio[name] = m.File(name)
		}
	}
	defer func() {
		for _, f := range stdio {
			f.Close()
		}
	}()
	var done pid1api.Executed
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	err = x.s.askGuest(ctx, pid1api.OpExec, g, stdio, &done)
	if errors.Is(err, ipc.ErrClosed) {
		err = ipc.Errorf(ipc.CodeGone, "execute command: sandbox %s ended", x.s.id)
	}
	if err != nil {
		reply["tty"].Close() // a no-op on a nil file
	}
	return done.PID, reply, err
}

// register numbers a new execution and adds it to the tables.
func (s *sandbox) register(c *caller, tag uint64) (*execution, error) {
	<-s.built
	blocked := s.net.blocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return nil, s.endedErr("execute command: sandbox")
	}
	s.next++
	x := &execution{
		s: s, id: s.next, started: time.Now(), done: make(chan struct{}),
		primary: s.spec.Lifetime == runner.OneShot && !s.primary,
		blocked: blocked, asker: c, tag: tag,
	}
	s.primary = true
	s.execs[x.id] = x
	s.idle.wake()
	s.used()
	s.e.pool.commanded()
	s.e.mu.Lock()
	s.e.recent[execKey{s.id, x.id}] = x
	s.e.mu.Unlock()
	return x, nil
}

// unregister removes an execution that failed to start.
func (s *sandbox) unregister(x *execution) {
	s.mu.Lock()
	delete(s.execs, x.id)
	s.rest()
	s.primary = s.primary && !x.primary
	s.mu.Unlock()
	s.e.mu.Lock()
	delete(s.e.recent, execKey{s.id, x.id})
	s.e.mu.Unlock()
	if x.tty != nil {
		x.tty.Close()
	}
}

// arm starts the timer of the time limit.
func (x *execution) arm(timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.done:
		return
	default:
	}
	x.timer = time.AfterFunc(timeout, func() {
		if x.primary {
			x.s.terminate(runner.TimedOut, "the time limit of "+timeout.String()+" was reached")
			return
		}
		x.expire(initTimeout)
	})
}

// expire ends a command at its time limit. It ends the sandbox if PID 1 does not report the command's end in time.
func (x *execution) expire(patience time.Duration) {
	x.mu.Lock()
	x.timeout = true
	x.mu.Unlock()
	x.kill(patience)
}

// kill ends a command. A PID 1 under a workload's control may claim to have killed it and never report its end. The
// sandbox then ends after patience.
func (x *execution) kill(patience time.Duration) {
	x.signal(syscall.SIGKILL)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-x.done:
	case <-late.C:
		x.s.terminate(runner.Lost, "PID 1 of the sandbox does not report the end of a command")
	}
}

func (x *execution) signal(sig syscall.Signal) error {
	select {
	case <-x.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	g := pid1api.Signal{Exec: x.id, Signal: int(sig), Group: true}
	return x.s.askGuest(ctx, pid1api.OpSignal, g, nil, nil)
}

// askGuest sends PID 1 a request about a command. A sandbox whose PID 1 does not answer ends, because no time limit
// would be enforced any more. A workload can cause that: a SIGSTOP to a process between fork and exec makes PID 1
// wait (vfork(2)).
func (s *sandbox) askGuest(ctx context.Context, op ipc.Op, body any, files ipc.Files, reply any) error {
	err := s.guest.Call(ctx, op, body, files, reply)
	if errors.Is(err, context.DeadlineExceeded) {
		const why = "PID 1 of the sandbox does not answer"
		go s.terminate(runner.Lost, why)
		err = ipc.Errorf(ipc.CodeGone, "sandbox %s: %s", s.id, why)
	}
	return err
}

// fromGuest handles a message that PID 1 sends unasked: the end of a command.
func (s *sandbox) fromGuest(m *ipc.Message) {
	defer m.Close()
	var ex pid1api.Exited
	if m.Op != pid1api.OpExited || m.Decode(&ex) != nil {
		return
	}
	s.mu.Lock()
	x := s.execs[ex.Exec]
	s.mu.Unlock()
	if x == nil {
		return
	}
	if !x.primary {
		x.finish(&ex)
		go x.tell() // a slow reader must not delay the notices to others
		return
	}
	// The sandbox ends with this command. The result is set after everything else is gone.
	s.mu.Lock()
	if s.verdict == "" {
		s.verdict = runner.Exited
	}
	delete(s.execs, x.id)
	s.mu.Unlock()
	go func() {
		first := s.teardown("")
		x.finish(&ex)
		x.tell()
		if first {
			s.e.forget(s)
		}
	}()
}
