package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/guestapi"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

type execKey struct {
	sandbox string
	exec    uint64
}

// execution is a command in a sandbox, from its start until its result was read.
type execution struct {
	s       *sandbox
	id      uint64
	started time.Time
	tty     *os.File // our copy, for resize and attach
	screen  screen   // of it
	timer   *time.Timer
	blocked []runner.Blocked // before it
	primary bool             // of a one-shot sandbox, which ends with it
	asker   *caller          // who is told the end of it,
	tag     uint64           // by this word; 0: nobody

	once   sync.Once
	done   chan struct{} // closed when result is there
	result *runner.Result

	mu      sync.Mutex
	timeout bool
}

// exec starts a command in a sandbox that lives.
func (c *caller) exec(req protocol.ExecRequest, m *wire.Message) (*protocol.ExecReply, wire.Files, error) {
	s, rec, err := c.e.locate(req.Sandbox)
	if err == nil && s == nil {
		err = stopped(rec)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.execute(c, req, m)
}

// execute starts a command and answers with its number, and its terminal if it has
// one.
func (s *sandbox) execute(c *caller, req protocol.ExecRequest, m *wire.Message) (*protocol.ExecReply, wire.Files, error) {
	if len(req.Argv) == 0 || len(req.Argv[0]) == 0 {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "execute command: it is empty")
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	x, err := s.enrol(c, req.Tag)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.guestExec(x, req)
	if err != nil {
		s.strike(x)
		return nil, nil, err
	}
	files := wire.Files{}
	reply := wire.Files{}
	if req.TTY != nil {
		if err := x.openTTY(c, req, &g); err != nil {
			s.strike(x)
			return nil, nil, err
		}
		if reply["tty"], err = dup(x.tty); err != nil {
			s.strike(x)
			return nil, nil, err
		}
	} else {
		for _, name := range []string{"stdin", "stdout", "stderr"} {
			files[name] = m.File(name)
		}
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var done guestapi.Executed
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	if err := s.guest.Call(ctx, guestapi.OpExec, g, files, &done); err != nil {
		s.strike(x)
		if errors.Is(err, wire.ErrClosed) {
			return nil, nil, wire.Errorf(wire.CodeGone, "execute command: sandbox %s ended", s.id)
		}
		return nil, nil, err
	}
	x.arm(time.Duration(req.Timeout))
	if x.tty != nil {
		x.leaveIfGone(c)
	}
	s.mu.Lock()
	news := s.kept.news
	s.kept.news = false
	s.mu.Unlock()
	took := []runner.Stage{{Name: "exec", MS: ms(time.Since(x.started))}}
	started := &protocol.ExecReply{Exec: x.id, PID: done.PID, Trace: took, Restarted: news}
	if req.Receipt != nil {
		started.Digest, started.Receipt = s.accountFor(*req.Receipt)
	}
	return started, reply, nil
}

// enrol numbers a new execution and makes it findable.
func (s *sandbox) enrol(c *caller, tag uint64) (*execution, error) {
	<-s.built
	blocked := s.net.blocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return nil, s.goneFor("execute command: sandbox")
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
	s.e.mu.Lock()
	s.e.recent[execKey{s.id, x.id}] = x
	s.e.mu.Unlock()
	return x, nil
}

// strike takes back an execution that did not come to be.
func (s *sandbox) strike(x *execution) {
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

func (s *sandbox) guestExec(x *execution, req protocol.ExecRequest) (guestapi.Exec, error) {
	who, err := s.runsAs(req.User)
	if err != nil {
		return guestapi.Exec{}, err
	}
	g := guestapi.Exec{
		Exec: x.id, Argv: req.Argv, Dir: req.Dir, Rlimits: s.rlimits(),
		UID: who.UID, GID: who.GID, Groups: who.Groups,
	}
	env := append(runner.DefaultEnv(), s.paths.env()...)
	env = append(env, "HOME="+who.Home)
	dir := s.paths.workspace
	if image := s.spec.Rootfs; image != nil {
		env = append(env, image.Env...)
		dir = cmp.Or(image.WorkingDir, dir)
	}
	if s.net != nil {
		env = append(env, s.net.env(s.tree.CertFile)...)
	}
	g.Env = wire.ByteStrings(lastWins(append(env, wire.Strings(req.Env)...)))
	if len(g.Dir) == 0 {
		g.Dir = wire.Bytes(dir)
	}
	g.SetIDs = s.e.boot.UIDs() > 1
	return g, nil
}

// env names the places of a sandbox for its commands.
func (p paths) env() []string {
	return []string{
		"HOME=" + p.home, "TMPDIR=" + p.tmp,
		"DEMESNE_IN=" + p.in, "DEMESNE_OUT=" + p.out, "DEMESNE_WORKSPACE=" + p.workspace,
	}
}

// lastWins keeps the last value of each name, in the order of first appearance.
func lastWins(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

// arm starts the clock.
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
		x.mu.Lock()
		x.timeout = true
		x.mu.Unlock()
		if x.primary {
			x.s.condemn(runner.TimedOut, "the time limit of "+timeout.String()+" was reached")
			return
		}
		x.signal(syscall.SIGKILL)
	})
}

func (x *execution) signal(sig syscall.Signal) error {
	select {
	case <-x.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	g := guestapi.Signal{Exec: x.id, Signal: int(sig), Group: true}
	return x.s.guest.Call(ctx, guestapi.OpSignal, g, nil, nil)
}

// fromGuest takes what PID 1 tells unasked: a command ended.
func (s *sandbox) fromGuest(m *wire.Message) {
	defer m.Close()
	var ex guestapi.Exited
	if m.Op != guestapi.OpExited || m.Decode(&ex) != nil {
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
		go x.tell() // whoever is slow to read must not keep others from being told
		return
	}
	// Its sandbox ends with it; the result is there when nothing else is.
	s.mu.Lock()
	if s.verdict == "" {
		s.verdict = runner.Exited
	}
	delete(s.execs, x.id)
	s.mu.Unlock()
	go func() {
		first := s.takeDown("")
		x.finish(&ex)
		x.tell()
		if first {
			s.e.forget(s)
		}
	}()
}

// tell sends the result to who started the command, if that is how it wants to have it.
func (x *execution) tell() {
	if x.tag != 0 {
		x.asker.peer.Event(protocol.OpEnded, protocol.ExecEnded{Tag: x.tag, Result: x.result})
	}
}

// finish makes x's result; ex is nil if PID 1 could not tell.
func (x *execution) finish(ex *guestapi.Exited) {
	x.once.Do(func() {
		s := x.s
		s.mu.Lock()
		delete(s.execs, x.id)
		s.rest()
		s.renew()
		verdict, detail := s.verdict, s.detail
		s.mu.Unlock()
		x.mu.Lock()
		if x.timer != nil {
			x.timer.Stop()
		}
		if x.timeout && verdict != runner.TimedOut {
			verdict, detail = runner.TimedOut, "the time limit was reached"
		}
		x.mu.Unlock()
		r := outcome(ex, verdict, detail)
		// Of a sandbox that has ended the kernel's count was read when nothing ran in it any more.
		suspect := x.primary && verdict == runner.Exited || verdict == "" && r.Signal == int(syscall.SIGKILL)
		if ex != nil && suspect && s.group.OOMKilled() {
			r = outcome(ex, runner.OOM, "the memory limit was reached")
		}
		r.Sandbox, r.Out, r.Started = s.id, s.spec.Out, x.started.UTC() // or the time zone is read, for this alone
		r.Seconds = time.Since(x.started).Seconds()
		if s.egress != nil {
			r.Denied, r.EgressLog = since(x.blocked, s.net.blocked()), s.spec.Egress.Log
		}
		x.result = r
		s.mu.Lock()
		s.last = r
		s.mu.Unlock()
		if x.tty != nil {
			x.tty.Close()
		}
		s.e.mu.Lock()
		s.e.ended = append(s.e.ended, execKey{s.id, x.id})
		s.e.mu.Unlock()
		close(x.done)
	})
}

// outcome decides what a caller is told. What we did to a command (a verdict) goes
// before what wait(2) says of it; a limit that was reached is never told as a
// plain signal, an OOM kill never as a timeout. It is pure.
func outcome(ex *guestapi.Exited, verdict runner.Reason, detail string) *runner.Result {
	r := &runner.Result{Reason: runner.Lost, Detail: detail, ExitCode: 125}
	if ex != nil {
		ws := syscall.WaitStatus(ex.Status)
		r.Reason, r.ExitCode = runner.Exited, ws.ExitStatus()
		if ws.Signaled() {
			r.Reason, r.Signal, r.ExitCode = runner.Signaled, int(ws.Signal()), 128+int(ws.Signal())
			r.Detail = "killed by " + unix.SignalName(ws.Signal())
		}
		r.MaxRSS = ex.MaxRSS << 10
		r.CPU = (ex.UTime + ex.STime).Seconds()
	}
	switch verdict {
	case runner.TimedOut:
		r.Reason, r.ExitCode, r.Detail = verdict, 124, detail
	case runner.OOM, runner.DiskFull:
		r.Reason, r.ExitCode, r.Detail = verdict, 137, detail
	case runner.Lost:
		if ex == nil {
			r.Reason, r.ExitCode, r.Detail = verdict, 125, detail
		}
	}
	return r
}
