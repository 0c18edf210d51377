package engine

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/network"
	"demesne/runner/pid1/pid1api"
)

// tell sends the result to who started the command, if that is how it wants to have it.
func (x *execution) tell() {
	if x.tag != 0 {
		x.asker.peer.Event(api.OpEnded, api.ExecEnded{Tag: x.tag, Result: x.result})
	}
}

// finish makes x's result; ex is nil if PID 1 could not tell.
func (x *execution) finish(ex *pid1api.Exited) {
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
		if x.primary { // its sandbox is no more
			spoil(r, s.shared.unwashed)
		}
		r.Sandbox, r.Out, r.Started = s.id, s.spec.Out, x.started.UTC() // or the time zone is read, for this alone
		r.Seconds = time.Since(x.started).Seconds()
		if s.egress != nil {
			r.Denied, r.EgressLog = network.Since(x.blocked, s.net.blocked()), s.egress.Log
		}
		x.result = r
		s.mu.Lock()
		s.last = r
		s.mu.Unlock()
		if x.tty != nil {
			x.tty.Close()
		}
		s.e.remember(execKey{s.id, x.id})
		close(x.done)
	})
}

// endedMax is how many commands that have ended are remembered, for who asks for the result late.
const endedMax = 1024

// remember notes that a command has ended, and forgets those that ended long ago.
func (e *Engine) remember(ended execKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = append(e.ended, ended)
	for len(e.ended) > endedMax {
		delete(e.recent, e.ended[0])
		e.ended = e.ended[1:]
	}
}

// outcome decides what a caller is told. What we did to a command (a verdict) goes
// before what wait(2) says of it; a limit that was reached is never told as a
// plain signal, an OOM kill never as a timeout. It is pure.
func outcome(ex *pid1api.Exited, verdict runner.Reason, detail string) *runner.Result {
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
	case runner.OOM, runner.DiskFull, runner.PIDLimit:
		r.Reason, r.ExitCode, r.Detail = verdict, 137, detail
	case runner.Lost:
		if ex == nil {
			r.Reason, r.ExitCode, r.Detail = verdict, 125, detail
		}
	}
	return r
}
