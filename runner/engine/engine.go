package engine

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/doctor"
	"demesne/runner/ipc"
	"demesne/runner/network"
	"demesne/runner/sandbox"
)

// Engine is the state of a runner.
type Engine struct {
	machine *sandbox.Machine
	ready   chan struct{} // closed when machine is set up, or broken is set
	broken  error

	// Each has a lock of its own.
	results  sandbox.Results
	keys     keyLocks
	pool     *sandbox.Pool[*sandbox.Sandbox]
	sweeping sync.Mutex // serializes sweep

	table  table
	outMap outMap // real root's

	mu        sync.Mutex // guards the fields below; taken before the locks above
	callers   int
	linger    linger
	idle      chan struct{} // closed when the runner has nothing left to serve
	accepting bool
}

// settled waits for setUp and returns its error.
func (e *Engine) settled() error {
	<-e.ready
	if e.broken != nil {
		return fmt.Errorf("set up runner: %w", e.broken)
	}
	return nil
}

// sweep removes expired sandboxes and the remains of killed runners. A concurrent call waits for the one under way.
func (e *Engine) sweep() ([]string, error) {
	d, err := e.machine.Store()
	if err != nil {
		return nil, nil
	}
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
	removed, err := d.Sweep()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
	}
	return removed, sandbox.LeftBehind(err)
}

// enter counts a caller, or work that must be finished. It returns false if the runner is ending.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting {
		e.callers++
		e.linger.stop()
	}
	return e.accepting
}

// leave undoes enter.
func (e *Engine) leave() {
	e.mu.Lock()
	e.callers--
	e.mu.Unlock()
	e.maybeIdle()
}

// maybeIdle ends the runner, or lets it linger, when no sandbox and no caller is left.
func (e *Engine) maybeIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting && !e.serving() && !e.linger.begin(e.table.hasServed(), e.stopLingering) {
		e.accepting = false
		close(e.idle)
	}
}

// serving reports whether there is a caller or a sandbox. e.mu is held.
func (e *Engine) serving() bool { return e.callers > 0 || !e.table.empty() }

// goesOn reports whether the runner expects to serve another sandbox.
func (e *Engine) goesOn() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepting && (e.serving() || e.linger.timer != nil)
}

// setLinger takes how long to linger after a caller, up to [runner.MaxLinger].
func (e *Engine) setLinger(intro api.Introduction, alone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.linger.length = runner.DefaultLinger
	if intro.Linger != nil {
		e.linger.length = min(max(*intro.Linger, 0), runner.MaxLinger)
	}
	e.linger.retired = e.linger.retired || intro.Retire || alone
}

// stopLingering ends the runner, unless a caller came while t ran out.
func (e *Engine) stopLingering(t *time.Timer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting && e.linger.timer == t && !e.serving() {
		e.accepting = false
		close(e.idle)
	}
}

// watchProgram ends a runner that lingers when its program is replaced. Without inotify the runner lingers its time
// out.
func (e *Engine) watchProgram() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if _, err := unix.InotifyAddWatch(fd, "/proc/self/exe", unix.IN_ATTRIB|unix.IN_DELETE_SELF); err != nil {
		return
	}
	var events [4096]byte
	for {
		if _, err := f.Read(events[:]); err != nil {
			return
		}
		if replaced() {
			e.mu.Lock()
			t := e.linger.timer
			e.mu.Unlock()
			if t != nil {
				e.stopLingering(t)
			}
			return
		}
	}
}

// env returns the parts of e that sandboxes use.
func (e *Engine) env() sandbox.Env {
	return sandbox.Env{Machine: e.machine, Results: &e.results, Forgotten: e.forget}
}

// forget removes an ended sandbox from the table.
func (e *Engine) forget(s *sandbox.Sandbox) {
	e.table.drop(s)
	e.maybeIdle()
	e.pool.Refill()
}

// build makes s, which is registered. On an error it is not registered any more.
func (e *Engine) build(s *sandbox.Sandbox, m *ipc.Message) error {
	err := s.Build(m)
	if err != nil {
		e.table.drop(s)
		e.maybeIdle() // the caller may have left meanwhile
	}
	return err
}

// stop ends a live sandbox and removes its files unless t.Keep is set.
func (e *Engine) stop(s *sandbox.Sandbox, t api.Target) error {
	if t.Keep {
		return s.Stop(time.Duration(t.Grace))
	}
	s.Remove("stopped")
	// It may have been ending by itself.
	if rec, err := e.table.stopped(s.ID()); err == nil {
		return e.machine.StopOther(rec, false)
	}
	return nil
}

// admitEgress splits the egress of a Spec, see [network.Admit]. The proxy checks rules that allow nothing.
func (e *Engine) admitEgress(spec *runner.Spec, m *ipc.Message) (*runner.Egress, error) {
	return network.Admit(spec, func(asked runner.Egress) error {
		e.machine.Proxy.Program(m.File(api.FileProxy))
		_, err := e.machine.Proxy.Plan(asked)
		return err
	})
}

// check probes the machine for demesne check.
func (e *Engine) check() []runner.Probe {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cg := e.machine.Limits.Probe()
	b := e.machine.Boot
	return doctor.Run(ctx, doctor.Env{
		Minimal: b.Minimal(), ModeWhy: b.ModeWhy, ModeFix: b.ModeFix,
		UIDMap: b.UIDMap, GIDMap: b.GIDMap, MapWhy: b.MapWhy, MapFix: b.MapFix,
		RealRoot: b.RealRoot(),
		Limits:   doctor.Limits{Mechanism: cg.Detail, Why: cg.Why, Fix: cg.Fix},
		Dir:      e.machine.Dir,
		RunDir:   b.RunDir,
		Key:      b.Key,
		Alone:    b.Alone,
	})
}

func codeOf(err error) ipc.Code { return ipc.AsError(err).Code }
