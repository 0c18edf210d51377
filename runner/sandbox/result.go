package sandbox

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/network"
	"demesne/runner/pid1/pid1api"
)

// report sends the result to the caller that started the command, if it asked for that with a tag.
func (x *Execution) report() {
	if x.tag != 0 {
		x.asker.Event(api.OpEnded, api.ExecEnded{Tag: x.tag, Result: x.result})
	}
}

// finish sets x's result; ex is nil if PID 1 did not report the end.
func (x *Execution) finish(ex *pid1api.Exited) {
	x.once.Do(func() {
		s := x.s
		if !x.primary { // the end of the sandbox does that for the other
			s.files.deliver()
		}
		s.mu.Lock()
		delete(s.commands.running, x.id)
		s.idle.rest()
		s.lease.renew()
		verdict, detail := s.verdict, s.detail
		s.mu.Unlock()
		x.mu.Lock()
		if x.timer != nil {
			x.timer.Stop()
		}
		if x.timeout && verdict != runner.TimedOut {
			verdict, detail = runner.TimedOut, timedOut(x.limit)
		}
		x.mu.Unlock()
		r := outcome(ex, verdict, detail)
		// If the sandbox has ended, the kernel's count was read after its last process.
		suspect := x.primary && verdict == runner.Exited || verdict == "" && r.Signal == int(syscall.SIGKILL)
		if ex != nil && suspect && s.group.OOMKilled() {
			r = outcome(ex, runner.OOM, "the memory limit was reached")
		}
		if x.primary { // the sandbox has ended with it
			spoil(r, s.files.binds.unsettled)
		}
		if err := s.files.delivery.lost(); err != nil {
			r.Reason, r.ExitCode, r.Detail = runner.Lost, 125, "the output directory is not complete: "+err.Error()
		}
		r.Sandbox, r.Out, r.Started = s.id, s.spec.Out, x.started.UTC() // UTC, because a local time would load the time zone just for this
		r.Seconds = time.Since(x.started).Seconds()
		if s.egress != nil {
			r.Denied, r.EgressLog = network.Since(x.blocked, s.link.net.Blocked()), s.egress.Log
		}
		x.result = r
		s.mu.Lock()
		s.commands.last = r
		s.mu.Unlock()
		if x.tty != nil {
			x.tty.close()
		}
		s.env.Results.end(x)
		close(x.done)
	})
}

// outcome computes the result of a command. What the runner did to the command (the verdict) takes precedence over
// its wait(2) status. A limit that was reached is never reported as a plain signal, nor an OOM kill as a timeout.
// It is pure.
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
