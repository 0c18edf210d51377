// Package engine implements demesne-runner: it creates sandboxes, runs commands in them and tears them down.
//
// One process serves many callers and many sandboxes. It runs in an outer user namespace with all capabilities, in
// its own mount namespace, and in the host's network and pid namespaces. The files, in the order of one run:
//
//	serve.go      connections; calls.go  requests, one goroutine each; registry.go  the table of sandboxes
//	create.go     validation of a Spec
//	build.go      the steps of creating a sandbox (package receipt: what holds afterwards); teardown.go  its end
//	tree.go       its mounts; mountasync.go  mounting while PID 1 starts; image.go, imagelock.go  the image's layers;
//	              binds.go  the caller's directories
//	start.go      PID 1, on the best fallback level that works here
//	config.go     Spec → libcontainer configuration, pure
//	egress.go     the permitted egress of a sandbox, pure
//	network.go    its network, by package network; ask.go  changes to it
//	exec.go       a command in a sandbox; environ.go  its user and environment; result.go  its result
//	terminal.go   its terminal; attach.go  clients of the terminal
//	pool.go       prepared sandboxes; poolstate.go  their number and shapes
//	keep.go       the directory of a persistent sandbox; ttl.go  its expiry
//	fork.go       a sandbox made from the files of another; livefork.go  from a running one; autopause.go  idle ones
//	restart.go    starting a sandbox that has only files; reuse.go  finding a sandbox by its key
//	linger.go     how long the runner waits for the next caller
//	diff.go       changes against the image; layer.go  the same as layers of a new image
//	minimal.go    sandboxes without namespaces, for machines that forbid them
//
// The kernel guarantees teardown. PID 1 ends when its socket to the runner closes; its pid namespace ends with it,
// and the mounts and the network namespace end with their last user. No code of the runner has to run for a sandbox
// to end.
package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/doctor"
	"demesne/runner/given"
	"demesne/runner/ipc"
	"demesne/runner/pool"
	"demesne/runner/sandbox"
	"demesne/runner/userns"
)

// Engine is the state of a runner.
type Engine struct {
	on     *sandbox.Machine
	ready  chan struct{} // closed when on is set up, or broken is set
	broken error

	// Each has a lock of its own.
	results  sandbox.Results
	keys     keyLocks
	pool     *pool.Pool[*sandbox.Sandbox]
	sweeping sync.Mutex // serializes sweep

	table  table
	outMap outMap // real root's

	mu        sync.Mutex // guards the fields below; taken before the locks above
	callers   int
	linger    linger
	idle      chan struct{} // closed when the runner has nothing left to serve
	accepting bool
}

// newEngine returns an engine that serves one caller, the one that started the runner.
func newEngine(on *sandbox.Machine) *Engine {
	e := &Engine{on: on, table: table{on: on, all: map[string]*sandbox.Sandbox{}}, idle: make(chan struct{}), ready: make(chan struct{})}
	e.accepting, e.callers = true, 1
	e.pool = e.newPool()
	return e
}

// Main runs until the runner is no longer needed and returns its exit code.
func Main() int {
	life, err := lifeline()
	clean := false
	if err == nil {
		clean, err = serveAll(life)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
		return 1
	}
	if clean {
		life.Write([]byte("c"))
	}
	return 0
}

// lifeline returns the runner's end of the pipe that the reaper waits on.
func lifeline() (*os.File, error) {
	if os.Getenv(userns.EnvControl) == "" {
		return nil, errors.New("start: to be started by demesne, not by hand")
	}
	for _, name := range []string{userns.EnvControl, userns.EnvClean, userns.EnvMode, userns.EnvLock} {
		os.Unsetenv(name)
	}
	return os.NewFile(userns.FDLife, "life"), nil
}

// serveAll serves until the runner is idle and reports whether it leaves nothing for the reaper to remove.
func serveAll(life *os.File) (clean bool, _ error) {
	os.Setenv("GOMAXPROCS", "1")       // for libcontainer's children; this process has started already
	logrus.SetLevel(logrus.ErrorLevel) // the receipt reports what libcontainer would warn about
	m := &sandbox.Machine{Life: life, Clock: given.NewClock()}
	ctl := os.NewFile(api.FDControl, "control")
	line, err := bufio.NewReader(ctl).ReadBytes('\n')
	ctl.Close()
	if err != nil {
		return false, fmt.Errorf("read boot message: %w", err)
	}
	if err := json.Unmarshal(line, &m.Boot); err != nil {
		return false, fmt.Errorf("read boot message: %w", err)
	}
	e := newEngine(m)
	go e.watchProgram()
	// Callers are greeted meanwhile, because they have preparations of their own.
	go e.setUp()
	unix.SetNonblock(api.FDConn, true)
	unix.SetNonblock(api.FDListener, true)
	// SO_PEERCRED shows callers the process that called listen(2) last, not the one that made the socket (unix(7)).
	unix.Listen(api.FDListener, api.Backlog)
	go e.accept(os.NewFile(api.FDListener, "listener"))
	e.greet(ipc.NewConn(os.NewFile(api.FDConn, "caller")))
	e.leave()
	<-e.idle
	<-e.ready
	e.pool.Close()
	m.Close()
	return len(doctor.Left(m.Boot.RunDir, m.Boot.Key)) == 0 && !given.Left(m.Boot.RunDir, m.Boot.Key), nil
}

// setUp sets up the machine. Beside that it sweeps, so that no caller waits for it.
func (e *Engine) setUp() {
	defer close(e.ready)
	e.broken = e.on.SetUp(func() {
		if e.enter() {
			go func() { defer e.leave(); e.sweep() }()
		}
	})
}

// sweep removes expired sandboxes and the remains of killed runners. A concurrent call waits for the one under way.
func (e *Engine) sweep() ([]string, error) {
	d, err := e.on.Store()
	if err != nil {
		return nil, nil
	}
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
	removed, err := d.Sweep()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
	}
	return removed, err
}

// settled waits for setUp and returns its error.
func (e *Engine) settled() error {
	<-e.ready
	if e.broken != nil {
		return fmt.Errorf("set up runner: %w", e.broken)
	}
	return nil
}

// check probes the machine for demesne check.
func (e *Engine) check() []runner.Probe {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cg := e.on.Limits.Probe()
	b := e.on.Boot
	return doctor.Run(ctx, doctor.Env{
		Minimal: b.Mode == userns.ModeMinimal, ModeWhy: b.ModeWhy, ModeFix: b.ModeFix,
		UIDMap: b.UIDMap, GIDMap: b.GIDMap, MapWhy: b.MapWhy, MapFix: b.MapFix,
		RealRoot: b.Mode == userns.ModeRoot,
		Limits:   doctor.Limits{Mechanism: cg.Detail, Why: cg.Why, Fix: cg.Fix},
		Dir:      e.on.Dir,
		RunDir:   b.RunDir,
		Key:      b.Key,
	})
}
