package sandbox

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// Execute starts a command and returns its number, and its terminal if it has one.
func (s *Sandbox) Execute(c Caller, req api.ExecRequest, m *ipc.Message) (*api.ExecReply, ipc.Files, error) {
	if len(req.Argv) == 0 || len(req.Argv[0]) == 0 {
		return nil, nil, ipc.Errorf(ipc.CodeInvalid, "execute command: it is empty")
	}
	if err := s.hasSecrets(req.Secrets); err != nil {
		return nil, nil, err
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	x, err := s.register(c, req)
	if err != nil {
		return nil, nil, err
	}
	pid, reply, err := x.begin(c, req, m)
	if err != nil {
		s.unregister(x)
		return nil, nil, err
	}
	s.group.Stir()
	x.arm(time.Duration(req.Timeout))
	if x.tty != nil {
		x.leaveIfGone(c)
	}
	s.mu.Lock()
	x.begun = true
	if x.tty == nil && c.Left() { // c left before begun was set, so CallerLeft skipped x
		go x.kill(initTimeout)
	}
	s.mu.Unlock()
	took := []runner.Stage{{Name: "exec", MS: ms(time.Since(x.started))}}
	started := &api.ExecReply{Exec: x.id, PID: pid, Trace: took}
	if !req.Silent {
		n := s.files.persistent.takeNotice()
		started.Restarted, started.MissingSecrets = n.restarted, n.secrets
	}
	if req.Receipt != nil {
		started.Digest, started.Receipt = s.receipts.encoded(*req.Receipt)
	}
	return started, reply, nil
}

// begin makes PID 1 start x. reply has the terminal of x, if it has one.
func (x *Execution) begin(c Caller, req api.ExecRequest, m *ipc.Message) (pid int, reply ipc.Files, err error) {
	g, err := x.request(req)
	if err != nil {
		return 0, nil, err
	}
	x.s.noteUser(g.UID)
	reply = ipc.Files{}
	stdio := ipc.Files{}
	if req.TTY != nil {
		if err := x.openTTY(c, req, &g); err != nil {
			return 0, nil, err
		}
		if reply["tty"], err = x.tty.dup(); err != nil {
			return 0, nil, err
		}
	} else {
		for _, name := range ipc.Descriptors() {
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
	err = x.s.call(ctx, pid1api.OpExec, g, stdio, &done)
	if errors.Is(err, ipc.ErrClosed) {
		err = ipc.Errorf(ipc.CodeGone, "execute command: sandbox %s ended", x.s.id)
	}
	if err != nil {
		reply["tty"].Close() // a no-op on a nil file
	}
	return done.PID, reply, err
}

// noteUser makes the limit on processes one for all users, before the second user of the sandbox gets a command.
func (s *Sandbox) noteUser(uid uint32) {
	s.mu.Lock()
	known := s.commands.user == nil || *s.commands.user == uid
	if known {
		s.commands.user = &uid
	}
	s.mu.Unlock()
	if known || !s.group.SeveralUsers() {
		return
	}
	all := s.group.Receipt(s.files.watched())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receipts.setLimits(slices.DeleteFunc(all, func(l runner.LimitReceipt) bool { return l.Name != "pids" }))
}

// register numbers a new execution and adds it to the tables.
func (s *Sandbox) register(c Caller, req api.ExecRequest) (*Execution, error) {
	<-s.built
	blocked := s.link.net.Blocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return nil, s.endedErr("execute command: sandbox")
	}
	s.commands.next++
	x := &Execution{
		s: s, id: s.commands.next, started: time.Now(), done: make(chan struct{}),
		primary: s.spec.Lifetime == runner.OneShot && !s.commands.primary,
		blocked: blocked, asker: c, tag: req.Tag, alone: req.Alone,
	}
	s.commands.primary = true
	s.commands.running[x.id] = x
	s.idle.wake()
	s.lease.used()
	s.env.Results.add(x)
	return x, nil
}

// unregister removes an execution that failed to start.
func (s *Sandbox) unregister(x *Execution) {
	s.mu.Lock()
	delete(s.commands.running, x.id)
	s.idle.rest()
	s.commands.primary = s.commands.primary && !x.primary
	s.mu.Unlock()
	s.env.Results.remove(x)
	if x.tty != nil {
		x.tty.close()
	}
}

// arm starts the timer of the time limit.
func (x *Execution) arm(timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit = timeout
	select {
	case <-x.done:
		return
	default:
	}
	x.timer = time.AfterFunc(timeout, func() {
		if x.primary {
			x.s.terminate(runner.TimedOut, timedOut(timeout))
			return
		}
		x.expire(initTimeout)
	})
}

// timedOut describes the end of a command at its time limit.
func timedOut(limit time.Duration) string {
	return "the time limit of " + limit.String() + " was reached"
}

// expire ends a command at its time limit. It ends the sandbox if PID 1 does not report the command's end in time.
func (x *Execution) expire(patience time.Duration) {
	x.mu.Lock()
	x.timeout = true
	x.mu.Unlock()
	x.kill(patience)
}

// kill ends a command. A PID 1 under a workload's control may claim to have killed it and never report its end. The
// sandbox then ends after patience.
func (x *Execution) kill(patience time.Duration) {
	x.Signal(syscall.SIGKILL)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-x.done:
	case <-late.C:
		x.s.terminate(runner.Lost, "PID 1 of the sandbox does not report the end of a command")
	}
}

// Signal sends a signal to every process of x. It does nothing after the end of x.
func (x *Execution) Signal(sig syscall.Signal) error {
	select {
	case <-x.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	g := pid1api.Signal{Exec: x.id, Signal: int(sig), Group: true}
	return x.s.call(ctx, pid1api.OpSignal, g, nil, nil)
}

// call sends PID 1 a request about a command. A sandbox whose PID 1 does not answer ends, because no time limit
// would be enforced any more. A workload can cause that: a SIGSTOP to a process between fork and exec makes PID 1
// wait (vfork(2)).
func (s *Sandbox) call(ctx context.Context, op ipc.Op, body any, files ipc.Files, reply any) error {
	err := s.init.peer.Call(ctx, op, body, files, reply)
	if errors.Is(err, context.DeadlineExceeded) {
		const why = "PID 1 of the sandbox does not answer"
		go s.terminate(runner.Lost, why)
		err = ipc.Errorf(ipc.CodeGone, "sandbox %s: %s", s.id, why)
	}
	return err
}

// finishAlone is finish for a command that no process may outlive. It ends the sandbox if one does.
func (x *Execution) finishAlone(ex *pid1api.Exited) {
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	if err := x.s.call(ctx, pid1api.OpSignal, pid1api.Signal{All: true}, nil, nil); err != nil {
		x.s.terminate(runner.Lost, "a process outlives its command: "+err.Error())
	}
	x.finish(ex)
	x.report()
}

// fromInit handles a message that PID 1 sends unasked: the end of a command.
func (s *Sandbox) fromInit(m *ipc.Message) {
	defer m.Close()
	var ex pid1api.Exited
	if m.Op != pid1api.OpExited || m.Decode(&ex) != nil {
		return
	}
	s.mu.Lock()
	x := s.commands.running[ex.Exec]
	s.mu.Unlock()
	if x == nil {
		return
	}
	if x.alone && !x.primary {
		go x.finishAlone(&ex)
		return
	}
	if !x.primary {
		x.finish(&ex)
		go x.report() // a slow reader must not delay the notices to others
		return
	}
	// The sandbox ends with this command. The result is set after everything else is gone.
	s.mu.Lock()
	s.judge(runner.Exited, "")
	delete(s.commands.running, x.id)
	s.mu.Unlock()
	go func() {
		first := s.teardown("")
		x.finish(&ex)
		x.report()
		if first {
			forget(s)
		}
	}()
}
